//! Positions in a job's series as text: what a page shows to get only new points. Its characters
//! need no escape in an address.

use shoal_store::SeriesPosition;

/// Longer texts are not given out: addresses are limited, and the page reads everything again.
const MAX_TEXT: usize = 16 << 10;

/// `3.1700000000000.120.1-60-1700000009000.2-60-1700000009001*4...`: series, time of the oldest
/// point, points, and of each host its number (`x` for none), points and the time of the last one.
pub(crate) fn text(positions: &[SeriesPosition]) -> String {
    let host = |(host, (points, last_ms)): (&Option<u32>, &(u64, u64))| {
        format!(".{}-{points}-{last_ms}", host.map_or_else(|| "x".to_owned(), |host| host.to_string()))
    };
    let position = |it: &SeriesPosition| {
        let hosts: String = it.hosts.iter().map(host).collect();
        format!("{}.{}.{}{hosts}", it.series, it.first_ms, it.points)
    };
    let text = positions.iter().map(position).collect::<Vec<_>>().join("*");
    if text.len() > MAX_TEXT { String::new() } else { text }
}

/// The positions of a text. What is not one is left out: that series is read again.
pub(crate) fn read(text: &str) -> Vec<SeriesPosition> {
    text.split('*').filter_map(position).collect()
}

fn position(text: &str) -> Option<SeriesPosition> {
    let mut fields = text.split('.');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (series, first_ms, points) = (i64::try_from(number()?).ok()?, number()?, number()?);
    let host = |text: &str| {
        let (host, rest) = text.split_once('-')?;
        let (points, last_ms) = rest.split_once('-')?;
        let host = if host == "x" { None } else { Some(host.parse().ok()?) };
        Some((host, (points.parse().ok()?, last_ms.parse().ok()?)))
    };
    let hosts = fields.map(host).collect::<Option<_>>()?;
    Some(SeriesPosition { series, first_ms, points, hosts })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn positions_come_back_and_what_is_none_is_left_out() {
        let hosts = BTreeMap::from([(None, (1, 5)), (Some(2), (60, u64::MAX))]);
        let one = SeriesPosition { series: 3, first_ms: 5, points: 61, hosts };
        let other = SeriesPosition { series: 4, first_ms: 0, points: 0, hosts: BTreeMap::new() };
        let positions = [one, other];
        let shown = text(&positions);
        assert_eq!(shown, "3.5.61.x-1-5.2-60-18446744073709551615*4.0.0");
        assert_eq!(read(&shown), positions);
        for wrong in
            ["", "3", "3.5", "a.5.61", "3.5.61.x", "3.5.61.x-1", "3.5.61.y-1-5", "-3.5.61", "99999999999999999999.1.1"]
        {
            assert!(read(wrong).is_empty(), "{wrong}");
            assert_eq!(read(&format!("{wrong}*4.0.0")).len(), 1, "{wrong}");
        }
        assert_eq!(text(&vec![positions[0].clone(); 1000]), "");
    }
}
