use std::collections::VecDeque;

use super::*;
use crate::random::Random;

fn begins(path: &str) -> Event {
    Event::Arrived(Frame::Message(ToServer::FileBegins { path: path.to_owned(), is_last: false }))
}

fn ends(bytes: u64) -> Event {
    Event::Arrived(Frame::Message(ToServer::FileEnds { bytes }))
}

fn chunk() -> Event {
    Event::Arrived(Frame::Chunk(vec![1, 2]))
}

fn saved(path: &str) -> Io {
    Io::Send(ToAgent::FileSaved { path: path.to_owned() })
}

fn store(files: &mut FileReceiver, path: &str, result: Result<(), String>) -> Vec<Io> {
    assert_eq!(files.handle(begins(path)), [Io::Begin { path: path.to_owned(), is_last: false }, Io::Read]);
    assert_eq!(files.handle(chunk()), [Io::Append(vec![1, 2]), Io::Read]);
    assert_eq!(files.handle(ends(2)), [Io::Store]);
    files.handle(Event::Stored(result))
}

#[test]
fn files_are_answered_after_their_receipts() {
    let mut files = FileReceiver::new(true);
    assert_eq!(store(&mut files, "a", Ok(())), [Io::Read]);
    assert_eq!(store(&mut files, "b", Ok(())), [Io::Read]);
    assert_eq!(files.handle(Event::Drained), [Io::Commit(vec!["a".to_owned(), "b".to_owned()])]);
    assert_eq!(files.handle(Event::Committed), [saved("a"), saved("b"), Io::Read]);
    assert_eq!(files.handle(Event::Drained), []);
}

#[test]
fn answers_have_the_order_of_the_files() {
    let mut files = FileReceiver::new(true);
    store(&mut files, "a", Ok(()));
    assert_eq!(store(&mut files, "b", Err("full".to_owned())), [Io::Commit(vec!["a".to_owned()])]);
    let refused = Io::Send(ToAgent::FileRefused { path: "b".to_owned(), reason: "full".to_owned() });
    assert_eq!(files.handle(Event::Committed), [saved("a"), refused, Io::Read]);
}

#[test]
fn files_without_receipts_are_answered_without_a_commit() {
    let mut files = FileReceiver::new(false);
    store(&mut files, "a", Ok(()));
    assert_eq!(files.handle(Event::Drained), [saved("a"), Io::Read]);
}

#[test]
fn a_dropped_file_is_forgotten() {
    let mut files = FileReceiver::new(true);
    files.handle(begins("a"));
    assert_eq!(files.handle(Event::Arrived(Frame::Message(ToServer::FileDropped))), [Io::Drop, Io::Read]);
    assert_eq!(store(&mut files, "a", Ok(())), [Io::Read]);
}

#[test]
fn what_is_not_part_of_a_file_ends_the_connection() {
    for event in [chunk(), ends(0), Event::Arrived(Frame::Message(ToServer::Alive))] {
        assert_eq!(FileReceiver::new(true).handle(event), [Io::Refuse]);
    }
    let mut files = FileReceiver::new(true);
    files.handle(begins("a"));
    assert_eq!(files.handle(begins("b")), [Io::Refuse]);
    files.handle(begins("a"));
    assert_eq!(files.handle(ends(7)), [Io::Refuse], "with the wrong length");
}

/// A driver and its agent: frames that are sent, and what became of them.
struct Driver {
    seed: u64,
    random: Random,
    files: FileReceiver,
    has_receipts: bool,
    /// What the agent has still to send.
    frames: VecDeque<Frame<ToServer>>,
    /// Bytes of the file that arrives now.
    open: Option<(String, Vec<u8>)>,
    stored: Vec<String>,
    receipts: Vec<String>,
    answers: Vec<String>,
}

impl Driver {
    /// Performs what is requested; returns the events that answer it.
    fn perform(&mut self, io: Vec<Io>, has_drained: bool) -> Option<Event> {
        let mut next = None;
        for io in io {
            let answer = match io {
                Io::Begin { path, .. } => {
                    self.open = Some((path, Vec::new()));
                    None
                }
                Io::Append(bytes) => {
                    self.open.as_mut().expect("a file").1.extend(bytes);
                    None
                }
                Io::Drop => {
                    self.open = None;
                    None
                }
                Io::Store => {
                    let (path, bytes) = self.open.take().expect("a file");
                    assert_eq!(bytes.len() % 2, 0, "seed {}: it is stored whole", self.seed);
                    if path.ends_with("refused") {
                        Some(Event::Stored(Err("no room".to_owned())))
                    } else {
                        self.stored.push(path);
                        Some(Event::Stored(Ok(())))
                    }
                }
                Io::Commit(paths) => {
                    assert!(self.has_receipts && !paths.is_empty(), "seed {}", self.seed);
                    assert!(paths.iter().all(|path| self.stored.contains(path)), "seed {}: {paths:?}", self.seed);
                    self.receipts.extend(paths);
                    Some(Event::Committed)
                }
                Io::Send(ToAgent::FileSaved { path }) => {
                    let durable = if self.has_receipts { &self.receipts } else { &self.stored };
                    assert!(durable.contains(&path), "seed {}: {path} is answered before it is durable", self.seed);
                    self.answers.push(path);
                    None
                }
                Io::Send(ToAgent::FileRefused { path, .. }) => {
                    assert!(!self.stored.contains(&path), "seed {}: {path}", self.seed);
                    self.answers.push(path);
                    None
                }
                Io::Read if self.frames.is_empty() || !has_drained && self.random.one_in(3) => {
                    (!has_drained).then_some(Event::Drained)
                }
                Io::Read => self.frames.pop_front().map(Event::Arrived),
                other => panic!("seed {}: {other:?}", self.seed),
            };
            assert!(next.is_none() || answer.is_none(), "seed {}: two answers are awaited", self.seed);
            next = next.or(answer);
        }
        next
    }
}

#[test]
fn every_file_is_answered_once_in_order_and_after_it_is_durable() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (mut frames, mut expected) = (VecDeque::new(), Vec::new());
        for number in 0..random.below(12) {
            let path = format!("{number}{}", if random.one_in(4) { " refused" } else { "" });
            let begins = ToServer::FileBegins { path: path.clone(), is_last: false };
            frames.push_back(Frame::Message(begins));
            let chunks = random.below(4);
            frames.extend((0..chunks).map(|_| Frame::Chunk(vec![1, 2])));
            if random.one_in(5) {
                frames.push_back(Frame::Message(ToServer::FileDropped));
            } else {
                frames.push_back(Frame::Message(ToServer::FileEnds { bytes: 2 * chunks as u64 }));
                expected.push(path);
            }
        }
        let has_receipts = random.one_in(2);
        let mut driver = Driver {
            seed,
            random,
            files: FileReceiver::new(has_receipts),
            has_receipts,
            frames,
            open: None,
            stored: Vec::new(),
            receipts: Vec::new(),
            answers: Vec::new(),
        };
        let mut event = driver.perform(vec![Io::Read], false);
        while let Some(happened) = event {
            let has_drained = matches!(happened, Event::Drained);
            let mut io = driver.files.handle(happened);
            if has_drained && io.is_empty() {
                // The driver reads on, and waits.
                io.push(Io::Read);
            }
            event = driver.perform(io, has_drained);
            assert!(driver.answers.len() <= expected.len(), "seed {seed}: {:?}", driver.answers);
        }
        assert!(driver.frames.is_empty(), "seed {seed}");
        assert_eq!(driver.answers, expected, "seed {seed}");
    }
}

#[test]
fn no_event_in_any_state_answers_for_a_file_that_is_not_stored() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut files = FileReceiver::new(true);
        // Files that the driver has stored when it was asked to, and those whose receipts it has.
        let (mut asked, mut path) = (false, String::new());
        let (mut stored, mut submitted, mut durable) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..30 {
            let event = match random.below(8) {
                0 | 1 => begins(&step.to_string()),
                2 => chunk(),
                3 => ends(2 * random.below(2) as u64),
                4 => Event::Arrived(Frame::Message(ToServer::FileDropped)),
                5 => {
                    stored.extend(std::mem::take(&mut asked).then(|| path.clone()));
                    Event::Stored(Ok(()))
                }
                6 => {
                    durable.append(&mut submitted);
                    Event::Committed
                }
                _ => Event::Drained,
            };
            for io in files.handle(event) {
                match io {
                    Io::Begin { path: begun, .. } => path = begun,
                    Io::Store => asked = true,
                    // The connection is over, and what comes late is of it.
                    Io::Refuse => asked = false,
                    Io::Commit(paths) => {
                        assert!(paths.iter().all(|path| stored.contains(path)), "seed {seed}, step {step}: {paths:?}");
                        submitted.extend(paths);
                    }
                    Io::Send(ToAgent::FileSaved { path }) => {
                        let place = durable.iter().position(|it| *it == path);
                        durable
                            .remove(place.unwrap_or_else(|| panic!("seed {seed}, step {step}: {path} is not durable")));
                    }
                    _ => {}
                }
            }
        }
    }
}
