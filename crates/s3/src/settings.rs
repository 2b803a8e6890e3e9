//! A bucket's settings. Beside its policy, what is read is what holds for every bucket: nothing is
//! public, and all objects belong to the account. What would change that is refused (here and in
//! `refusals`); what asks for just that is done already.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use shoal_policy::Policy;

use crate::attributes;
use crate::backend::Backend;
use crate::errors::blocking;
use crate::guard;

async fn check(backend: &Backend, bucket: &str, expected_owner: Option<&str>) -> S3Result<()> {
    backend.check_owner(expected_owner)?;
    backend.check_bucket(bucket).await
}

pub(crate) async fn get_bucket_cors(
    backend: &Backend,
    input: GetBucketCorsInput,
) -> S3Result<S3Response<GetBucketCorsOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Err(s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))
}

pub(crate) async fn delete_bucket_cors(
    backend: &Backend,
    input: DeleteBucketCorsInput,
) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(DeleteBucketCorsOutput::default()))
}

pub(crate) async fn get_bucket_policy(
    backend: &Backend,
    input: GetBucketPolicyInput,
) -> S3Result<S3Response<GetBucketPolicyOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    match policy(backend, input.bucket).await? {
        Some(policy) => Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy) })),
        None => Err(s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist")),
    }
}

async fn policy(backend: &Backend, bucket: String) -> S3Result<Option<String>> {
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.bucket_policy(&bucket)).await
}

/// A policy that opens the bucket to everyone is refused: the public access block of every bucket
/// is switched on.
pub(crate) async fn put_bucket_policy(
    backend: &Backend,
    input: PutBucketPolicyInput,
) -> S3Result<S3Response<PutBucketPolicyOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let parsed = Policy::of_resource(&input.policy)
        .map_err(|error| s3_error!(MalformedPolicy, "The policy is not understood: {error}."))?;
    if parsed.resource_outside(&[guard::arn(&input.bucket, None)]) {
        return Err(s3_error!(
            MalformedPolicy,
            "Policy has invalid resource: all are {} and what is below it.",
            guard::arn(&input.bucket, None)
        ));
    }
    if parsed.is_public() {
        return Err(s3_error!(
            AccessDenied,
            "Access Denied: public policies are blocked by the BlockPublicPolicy setting of the bucket's public access \
             block. Name in Principal who may do what."
        ));
    }
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.set_bucket_policy(&input.bucket, Some(&input.policy))).await?;
    Ok(S3Response::new(PutBucketPolicyOutput::default()))
}

pub(crate) async fn get_bucket_policy_status(
    backend: &Backend,
    input: GetBucketPolicyStatusInput,
) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    if policy(backend, input.bucket).await?.is_none() {
        return Err(s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist"));
    }
    let policy_status = Some(PolicyStatus { is_public: Some(false) });
    Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status }))
}

pub(crate) async fn delete_bucket_policy(
    backend: &Backend,
    input: DeleteBucketPolicyInput,
) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.set_bucket_policy(&input.bucket, None)).await?;
    Ok(S3Response::new(DeleteBucketPolicyOutput::default()))
}

pub(crate) async fn put_bucket_encryption(
    backend: &Backend,
    input: PutBucketEncryptionInput,
) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let rules = input.server_side_encryption_configuration.rules;
    let defaults = rules.iter().filter_map(|rule| rule.apply_server_side_encryption_by_default.as_ref());
    if defaults.into_iter().any(|default| default.sse_algorithm != attributes::at_rest()) {
        return Err(s3_error!(
            NotImplemented,
            "Only SSE-S3 (AES256), which every bucket has: there is no key management, so objects would be stored \
             without the key."
        ));
    }
    if rules.iter().any(|rule| rule.bucket_key_enabled == Some(true)) {
        return Err(s3_error!(
            NotImplemented,
            "There are no bucket keys, as there is no key management: leave out BucketKeyEnabled."
        ));
    }
    Ok(S3Response::new(PutBucketEncryptionOutput::default()))
}

pub(crate) async fn get_bucket_encryption(
    backend: &Backend,
    input: GetBucketEncryptionInput,
) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let default = ServerSideEncryptionByDefault { kms_master_key_id: None, sse_algorithm: attributes::at_rest() };
    let rule = ServerSideEncryptionRule {
        apply_server_side_encryption_by_default: Some(default),
        bucket_key_enabled: Some(false),
    };
    let server_side_encryption_configuration = Some(ServerSideEncryptionConfiguration { rules: vec![rule] });
    Ok(S3Response::new(GetBucketEncryptionOutput { server_side_encryption_configuration }))
}

pub(crate) async fn delete_bucket_encryption(
    backend: &Backend,
    input: DeleteBucketEncryptionInput,
) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    // Back to SSE-S3, which the bucket has.
    Ok(S3Response::new(DeleteBucketEncryptionOutput::default()))
}

pub(crate) async fn put_public_access_block(
    backend: &Backend,
    input: PutPublicAccessBlockInput,
) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let PublicAccessBlockConfiguration {
        block_public_acls,
        block_public_policy,
        ignore_public_acls,
        restrict_public_buckets,
    } = input.public_access_block_configuration;
    if [block_public_acls, block_public_policy, ignore_public_acls, restrict_public_buckets].contains(&Some(false)) {
        return Err(s3_error!(NotImplemented, "Public access stays blocked: every request needs a signature."));
    }
    Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
}

pub(crate) async fn get_public_access_block(
    backend: &Backend,
    input: GetPublicAccessBlockInput,
) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let blocked = PublicAccessBlockConfiguration {
        block_public_acls: Some(true),
        block_public_policy: Some(true),
        ignore_public_acls: Some(true),
        restrict_public_buckets: Some(true),
    };
    Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration: Some(blocked) }))
}

pub(crate) async fn get_bucket_ownership_controls(
    backend: &Backend,
    input: GetBucketOwnershipControlsInput,
) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let object_ownership = ObjectOwnership::from_static(ObjectOwnership::BUCKET_OWNER_ENFORCED);
    let ownership_controls = Some(OwnershipControls { rules: vec![OwnershipControlsRule { object_ownership }] });
    Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls }))
}

pub(crate) async fn get_bucket_logging(
    backend: &Backend,
    input: GetBucketLoggingInput,
) -> S3Result<S3Response<GetBucketLoggingOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(GetBucketLoggingOutput::default()))
}

pub(crate) async fn get_bucket_notification_configuration(
    backend: &Backend,
    input: GetBucketNotificationConfigurationInput,
) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(GetBucketNotificationConfigurationOutput::default()))
}

pub(crate) async fn get_bucket_accelerate_configuration(
    backend: &Backend,
    input: GetBucketAccelerateConfigurationInput,
) -> S3Result<S3Response<GetBucketAccelerateConfigurationOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(GetBucketAccelerateConfigurationOutput::default()))
}

pub(crate) async fn get_bucket_request_payment(
    backend: &Backend,
    input: GetBucketRequestPaymentInput,
) -> S3Result<S3Response<GetBucketRequestPaymentOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(GetBucketRequestPaymentOutput { payer: Some(Payer::from_static(Payer::BUCKET_OWNER)) }))
}

pub(crate) async fn get_bucket_acl(
    backend: &Backend,
    input: GetBucketAclInput,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    let (owner, grants) = owners_alone(backend);
    Ok(S3Response::new(GetBucketAclOutput { grants: Some(grants), owner: Some(owner) }))
}

pub(crate) async fn get_object_acl(
    backend: &Backend,
    input: GetObjectAclInput,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    check(backend, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    backend.object(input.bucket, input.key, input.version_id).await?;
    let (owner, grants) = owners_alone(backend);
    Ok(S3Response::new(GetObjectAclOutput { grants: Some(grants), owner: Some(owner), request_charged: None }))
}

/// The access control list of everything: the account has full control, and nobody else has any.
fn owners_alone(backend: &Backend) -> (Owner, Grants) {
    let id = Some(backend.options.account.clone());
    let grantee = Grantee {
        display_name: None,
        email_address: None,
        id: id.clone(),
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let grant = Grant { grantee: Some(grantee), permission: Some(Permission::from_static(Permission::FULL_CONTROL)) };
    (Owner { display_name: None, id }, vec![grant])
}
