//! What browsers load beside pages, built into the binary. An address carries a digest of all of
//! it, so that it may be kept for ever.

use std::sync::LazyLock;

use hex_simd::AsciiCase;
use http::{HeaderValue, Response, header};
use sha2::{Digest, Sha256};

use super::{
    frame::PageError,
    responses::{Body, answer},
};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! asset {
    ($name:literal, $kind:expr) => {
        ($name, $kind, include_bytes!(concat!("../assets/", $name)))
    };
}

/// Name, type, contents.
static ASSETS: &[(&str, &str, &[u8])] = &[
    asset!("console.css", STYLE),
    asset!("console.js", SCRIPT),
    asset!("patch.js", SCRIPT),
    asset!("keys.js", SCRIPT),
    asset!("plot.js", SCRIPT),
    asset!("study.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("compare.js", SCRIPT),
    asset!("utilization.js", SCRIPT),
    asset!("logs.js", SCRIPT),
    asset!("runs.js", SCRIPT),
    asset!("tuning.js", SCRIPT),
    asset!("icon.svg", "image/svg+xml"),
    asset!("uplot/uPlot.iife.min.js", SCRIPT),
    asset!("uplot/uPlot.min.css", STYLE),
    asset!("uplot/LICENSE", "text/plain; charset=utf-8"),
];

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Sha256::new();
    ASSETS.iter().for_each(|(_, _, bytes)| digest.update(bytes));
    hex_simd::encode_to_string(&digest.finalize()[..6], AsciiCase::Lower)
});

/// Where an asset of this build is.
pub(crate) fn path(name: &str) -> String {
    format!("/console/assets/{}/{name}", *VERSION)
}

/// An asset. Another build's address gets this build's contents, but not for ever.
pub(crate) fn answer_of(version: &str, name: &str) -> Result<Response<Body>, PageError> {
    let (_, kind, bytes) = ASSETS
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| PageError::not_found("This server has no such file."))?;
    let mut response = answer(kind, *bytes);
    if version == *VERSION {
        let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
        response.headers_mut().insert(header::CACHE_CONTROL, forever);
    }
    Ok(response)
}
