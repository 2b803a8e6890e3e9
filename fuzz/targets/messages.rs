//! Everything else that is read from another process or from disk: link frames, events, snapshots,
//! the files of the training contract, log lines and metric definitions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shoal_contract::{Definition, Job, Scraper, Tail, escape_line, failure_text};
use shoal_link::{Decoder, Frame, ToAgent, ToServer, encode};
use shoal_plane::{Capacity, Catalog, Event, State};

fuzz_target!(|input: &[u8]| {
    let Some((choice, data)) = input.split_first() else { return };
    match choice % 6 {
        0 => {
            let mut decoder = Decoder::default();
            for part in data.chunks(7) {
                decoder.push(part);
                while let Ok(Some(frame)) = decoder.next::<ToServer>() {
                    if let Frame::Message(message) = frame {
                        encode(&Frame::Message(message)).expect("what was read can be said");
                    }
                }
            }
        }
        1 => {
            let mut decoder = Decoder::default();
            decoder.push(data);
            while let Ok(Some(_)) = decoder.next::<ToAgent>() {}
        }
        2 => {
            if let Ok(event) = Event::decode(data) {
                let again = Event::decode(&event.encode()).expect("what was read can be written");
                assert_eq!(event, again);
            }
        }
        3 => {
            let capacity = Capacity { cpus: 2, memory_bytes: 1 << 33, gpus: 0, instances: 8 };
            let catalog = Catalog::default();
            drop(State::from_snapshot(data, capacity, catalog));
        }
        4 => {
            let mut parts = data.splitn(3, |byte| *byte == 0);
            let mut next = || parts.next().unwrap_or_default();
            drop(Job::parse(next(), next(), next()));
            drop(failure_text(data));
        }
        _ => {
            let text = String::from_utf8_lossy(data);
            let (regex, lines) = text.split_once('\n').unwrap_or((&text, ""));
            let mut scraper = Scraper::new(&[Definition { name: "m".to_owned(), regex: regex.to_owned() }]);
            let mut tail = Tail::default();
            for line in lines.lines() {
                let escaped = escape_line(line.as_bytes());
                assert!(scraper.values(&escaped, line.as_bytes()).iter().all(|value| value.value.is_finite()));
                tail.push(line.as_bytes());
            }
        }
    }
});
