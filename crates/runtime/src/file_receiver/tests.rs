use super::*;

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
