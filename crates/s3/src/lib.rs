//! The S3 front: the s3s framework over our objects.
