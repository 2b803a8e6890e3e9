//! AWS shapes as plain types to and from http requests and responses; SigV4; error codes; the constraint table and its validator. Pure.
