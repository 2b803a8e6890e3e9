use super::*;

/// Frames that are there, and then none, or an end.
struct Frames {
    lengths: std::vec::IntoIter<usize>,
    ends: bool,
}

impl Frames {
    fn new(lengths: impl Into<Vec<usize>>, ends: bool) -> Self {
        Self { lengths: lengths.into().into_iter(), ends }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.lengths.next() {
            Some(length) => Poll::Ready(Some(Ok(Frame::data(vec![0; length].into())))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[test]
fn a_slow_link_is_served_and_a_body_that_stops_is_not() {
    let check = |frames: &[(u64, u64)], is_served: bool| {
        let mut pace = Pace { left: SLACK };
        for (waited, bytes) in frames {
            if pace.left <= Duration::from_secs(*waited) {
                assert!(!is_served, "{frames:?}");
                return;
            }
            pace.waited(Duration::from_secs(*waited));
            pace.received(*bytes);
        }
        assert!(is_served, "{frames:?}");
    };
    // Hours at just over the least rate.
    check(&[(10, 10 * MIN_BYTES_PER_S + 1); 2000], true);
    check(&[(0, 1 << 40), (29, 1)], true);
    // What came fast at the beginning is no credit for hours.
    check(&[(0, 1 << 40), (31, 1)], false);
    check(&[(31, 1)], false);
    // Each byte within half a minute, all of them too slow.
    check(&[(9, 1); 5], false);
}

#[tokio::test]
async fn a_body_that_stops_ends_with_an_error() {
    let mut body = PacedBody {
        body: Frames::new([3], false),
        part: None,
        pace: Pace { left: Duration::from_millis(20) },
        waiting: None,
    };
    assert!(body.frame().await.unwrap().is_ok());
    body.pace.left = Duration::from_millis(20);
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("RequestTimeout: "), "{error}");
    let whole = PacedBody::new(Frames::new([3, 4], true)).collect().await.unwrap();
    assert_eq!(whole.to_bytes().len(), 7);
}

#[tokio::test]
async fn half_an_unverified_body_ends_in_time() {
    let unverified = Arc::new(Unverified { timeout: Duration::from_millis(20), ..Unverified::default() });
    let error = unverified.collect(&HeaderMap::new(), Frames::new([10], false)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::RequestTimeout);
    assert_eq!(unverified.bodies().held, 0);
    let unverified = Arc::new(Unverified::default());
    let error = unverified.collect(&HeaderMap::new(), Frames::new([MAX_REQUEST_BYTES, 1], true)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::RequestTooLarge);
    let declared = HeaderMap::from_iter([(http::header::CONTENT_LENGTH, (MAX_REQUEST_BYTES + 1).into())]);
    let error = unverified.collect(&declared, Frames::new([], false)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::RequestTooLarge, "told before anything is read");
}

#[tokio::test]
async fn many_large_bodies_have_bounded_memory_and_short_ones_pass() {
    let unverified = Arc::new(Unverified::default());
    let mut hostile = tokio::task::JoinSet::new();
    for _ in 0..150 {
        let unverified = unverified.clone();
        hostile.spawn(async move {
            unverified.collect(&HeaderMap::new(), Frames::new([MAX_REQUEST_BYTES - 1], false)).await
        });
    }
    // All but those that fit are refused at once.
    let fit = UNVERIFIED_BYTES / (MAX_REQUEST_BYTES - 1);
    for _ in fit..150 {
        let refused = hostile.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.code, ErrorCode::ServiceUnavailable);
    }
    let held = unverified.bodies().held;
    assert!(held <= UNVERIFIED_BYTES && held > UNVERIFIED_BYTES / 2, "{held} bytes");
    let long = vec![1 << 20; 3];
    let short = unverified.collect(&HeaderMap::new(), Frames::new(long, true)).await.unwrap();
    assert_eq!(short.len(), 3 << 20, "one that has the most makes room for it");
    hostile.shutdown().await;
    let bodies = unverified.bodies();
    assert!(bodies.held == 0 && bodies.by_size.is_empty() && bodies.dropped.is_empty());
}

#[tokio::test]
async fn forms_count_too_and_end_for_shorter_ones() {
    let unverified = Arc::new(Unverified::default());
    let part = unverified.part();
    let taken = part.is_taken();
    let mut form = PacedBody::unverified(Frames::new([UNVERIFIED_BYTES], false), part);
    assert!(form.frame().await.unwrap().is_ok());
    assert_eq!(unverified.bodies().held, UNVERIFIED_BYTES);
    let short = unverified.collect(&HeaderMap::new(), Frames::new([100], true)).await.unwrap();
    assert_eq!(short.len(), 100);
    taken.await;
    assert_eq!(unverified.bodies().held, 0);
    let mut longer = PacedBody::unverified(Frames::new([UNVERIFIED_BYTES + 1], false), unverified.part());
    assert!(longer.frame().await.unwrap().is_err(), "it has the most itself");
}
