//! The first host's side: one thread per connection reads, one thread decides.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::{Answer, Call, HEARTBEAT_SECONDS, Loss, Meeting, Plan, Report, encode};
use crate::xgboost::ffi::api::{Api, XGBoostError};
use crate::xgboost::ffi::collective::Tracker;

/// How long the caller waits for hosts to come. All of them are started together.
const ARRIVAL: Duration = Duration::from_secs(300);

/// Longest line that is read; a report is far shorter.
const MAX_LINE: u64 = 1 << 16;

/// How long the caller stays for the others to hear of a loss: if its process ended at once, they
/// might hear only of that.
const FAREWELL: Duration = Duration::from_secs(2);

/// A tracker is made anew after so long: it waits half an hour for its hosts, and reading data can
/// take longer.
const FRESH: Duration = Duration::from_secs(600);

/// The running roll.
pub(in crate::xgboost) struct Caller {
    /// Says when no host needs the caller any more.
    over: Receiver<()>,
}

impl Caller {
    /// Begins to listen on `address`, the calling host's.
    pub(in crate::xgboost) fn start(api: &'static Api, address: IpAddr, meeting: &Meeting) -> std::io::Result<Self> {
        let bind = |port| TcpListener::bind((address, port));
        let listener = meeting.ports().skip(1).fold(bind(meeting.port), |bound, port| match bound {
            Err(error) if error.kind() == ErrorKind::AddrInUse => bind(port),
            bound => bound,
        })?;
        let (tell, events) = channel();
        let job = meeting.job.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (tell, job) = (tell.clone(), job.clone());
                std::thread::spawn(move || listen(stream, &job, &tell));
            }
        });
        let (hosts, silence) = (meeting.hosts.clone(), meeting.silence);
        let (say_over, over) = channel();
        // The tracker belongs to the thread that made it.
        std::thread::spawn(move || {
            let roll = Roll {
                own: hosts.first().cloned().unwrap_or_default(),
                places: hosts.into_iter().map(|host| (host, Place::default())).collect(),
                began: Instant::now(),
                looked: Instant::now(),
                silence,
                api,
                address,
                tracker: None,
            };
            roll.call(&events, &say_over);
        });
        Ok(Self { over })
    }

    /// Waits until every host is done, or one was lost and the others know it.
    pub(in crate::xgboost) fn finish(self) {
        let _ = self.over.recv();
    }

    /// Waits for the others to hear of this host's failure.
    pub(in crate::xgboost) fn see_off(self) {
        let _ = self.over.recv_timeout(FAREWELL);
    }
}

/// What a connection brought.
enum Event {
    Arrived { host: String, stream: TcpStream },
    Said { host: String, answer: Answer },
    Left { host: String },
}

/// Reads one connection to its end. What does not begin with a hello for this job is none of its
/// hosts.
fn listen(stream: TcpStream, job: &str, tell: &Sender<Event>) {
    let Ok(writer) = stream.try_clone() else { return };
    let mut lines = BufReader::new(std::io::Read::take(stream, MAX_LINE));
    let mut next = || {
        let mut line = String::new();
        // The limit is on a line, not on the connection.
        lines.get_mut().set_limit(MAX_LINE);
        match lines.read_line(&mut line) {
            Ok(1..) => serde_json::from_str::<Answer>(&line).ok(),
            _ => None,
        }
    };
    let Some(Answer::Hello { job: of, host }) = next() else { return };
    if of != job {
        return;
    }
    if tell.send(Event::Arrived { host: host.clone(), stream: writer }).is_err() {
        return;
    }
    while let Some(answer) = next() {
        if tell.send(Event::Said { host: host.clone(), answer }).is_err() {
            return;
        }
    }
    let _ = tell.send(Event::Left { host });
}

/// What is known of one host.
#[derive(Default)]
struct Place {
    stream: Option<TcpStream>,
    /// For how long it has said nothing, once it has come.
    quiet: Option<Duration>,
    report: Option<Report>,
    done: bool,
}

struct Roll {
    /// The caller's own host.
    own: String,
    places: BTreeMap<String, Place>,
    began: Instant,
    /// When it last looked around.
    looked: Instant,
    silence: Duration,
    api: &'static Api,
    address: IpAddr,
    tracker: Option<Made>,
}

/// A tracker for so many hosts.
struct Made {
    hosts: usize,
    when: Instant,
    tracker: Tracker,
}

impl Roll {
    /// Runs until every host is done; after a loss, to the process's end.
    fn call(mut self, events: &Receiver<Event>, say_over: &Sender<()>) {
        // A tracker says its port 100 ms after it was made. So it is made while the hosts read
        // their data, which all of them have as a rule; if it cannot be made, the plan says so.
        let _later = self.track(self.places.len());
        loop {
            let loss = match events.recv_timeout(Duration::from_secs(HEARTBEAT_SECONDS)) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Some(loss) = loss.or_else(|| self.look_around()) {
                // The tracker is left as it is: ending it would wait for hosts that are gone, and
                // the process ends soon.
                return self.tell(&Call::Lost(loss), events, say_over);
            }
            if self.places.values().all(|place| place.done) {
                if let Some(made) = self.tracker.take() {
                    made.tracker.finish();
                }
                let _ = say_over.send(());
                return;
            }
        }
    }

    /// Tells every host of a loss, also those that come later.
    fn tell(&mut self, loss: &Call, events: &Receiver<Event>, say_over: &Sender<()>) {
        self.say(loss);
        loop {
            let others_are_gone =
                self.places.iter().all(|(host, place)| place.stream.is_none() || place.done || *host == self.own);
            if others_are_gone {
                let _ = say_over.send(());
            }
            match events.recv() {
                Ok(Event::Arrived { host, mut stream }) => {
                    let _ = stream.write_all(&encode(loss));
                    if let Some(place) = self.places.get_mut(&host) {
                        place.stream = Some(stream);
                    }
                }
                Ok(Event::Left { host }) => {
                    if let Some(place) = self.places.get_mut(&host) {
                        place.stream = None;
                    }
                }
                Ok(Event::Said { .. }) => {}
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, event: Event) -> Option<Loss> {
        let lost = |host: &str, how: &str| Some(Loss { host: host.to_owned(), how: how.to_owned() });
        match event {
            Event::Arrived { host, mut stream } => {
                // A peer that reads nothing must not hold up the roll.
                let _ = stream.set_write_timeout(Some(self.silence));
                let _ = stream.set_nodelay(true);
                let _ = stream.write_all(&encode(&Call::Alive));
                if let Some(place) = self.places.get_mut(&host) {
                    place.stream = Some(stream);
                    place.quiet = Some(Duration::ZERO);
                }
                None
            }
            Event::Said { host, answer } => {
                let place = self.places.get_mut(&host)?;
                place.quiet = Some(Duration::ZERO);
                match answer {
                    Answer::Ready(report) => {
                        place.report = Some(report);
                        self.plan_when_ready()
                    }
                    Answer::Failed { how } => lost(&host, &format!("failed: {how}")),
                    Answer::Done => {
                        place.done = true;
                        None
                    }
                    Answer::Alive | Answer::Hello { .. } => None,
                }
            }
            Event::Left { host } => {
                let left_early = self.places.get(&host).is_some_and(|place| !place.done);
                if let Some(place) = self.places.get_mut(&host) {
                    place.stream = None;
                }
                if left_early { lost(&host, "was lost: its process ended or its connection broke") } else { None }
            }
        }
    }

    /// Once in a while looks for silent and missing hosts, and says that the caller is alive.
    fn look_around(&mut self) -> Option<Loss> {
        let now = Instant::now();
        let passed = now.duration_since(self.looked);
        if passed < Duration::from_secs(HEARTBEAT_SECONDS) {
            return None;
        }
        self.looked = now;
        // After a longer time this process stood still itself, and what it was told meanwhile may
        // wait to be read.
        let awake = passed.min(Duration::from_secs(2 * HEARTBEAT_SECONDS));
        self.places.values_mut().filter_map(|place| place.quiet.as_mut()).for_each(|quiet| *quiet += awake);
        let arrival_is_over = now.duration_since(self.began) > ARRIVAL;
        let missing = self.places.iter().find_map(|(host, place)| {
            let how = match place.quiet {
                None if arrival_is_over => format!("did not come within {} seconds", ARRIVAL.as_secs()),
                Some(quiet) if !place.done && quiet > self.silence => {
                    format!(
                        "was lost: it said nothing for {} seconds (frozen, or cut off from the network)",
                        self.silence.as_secs()
                    )
                }
                _ => return None,
            };
            Some(Loss { host: host.clone(), how })
        });
        self.say(&Call::Alive);
        missing
    }

    /// Makes and sends the plan once every host has reported.
    fn plan_when_ready(&mut self) -> Option<Loss> {
        let mut reports: Vec<(&String, &Report)> = Vec::new();
        for (host, place) in &self.places {
            reports.push((host, place.report.as_ref()?));
        }
        reports.retain(|(_, report)| report.has_data);
        if let Some((first, model)) = reports.first()
            && let Some((host, report)) =
                reports.iter().find(|(_, report)| model.dense && report.columns != model.columns)
        {
            let how =
                format!("failed: its rows have {} features, those of {first} have {}", report.columns, model.columns);
            return Some(Loss { host: (*host).clone(), how });
        }
        let hosts: Vec<String> = reports.iter().map(|(host, _)| (*host).clone()).collect();
        let columns = reports.iter().map(|(_, report)| report.columns).max().unwrap_or(0);
        let mut tracker_port = 0;
        if hosts.len() > 1 {
            match self.track(hosts.len()).and_then(Tracker::port) {
                Ok(port) => tracker_port = port,
                Err(error) => {
                    return Some(Loss {
                        host: self.own.clone(),
                        how: format!("failed: it cannot start XGBoost's tracker: {error}"),
                    });
                }
            }
        } else {
            // Nobody comes to the one that was made for all.
            self.tracker = None;
        }
        self.say(&Call::Plan(Plan { hosts, columns, tracker_port }));
        None
    }

    /// The tracker of so many hosts. One that does not fit, or was made too long ago, is left as it
    /// is: nobody comes to it, and ending it would wait for them.
    fn track(&mut self, hosts: usize) -> Result<&Tracker, XGBoostError> {
        let fits = |made: &Made| made.hosts == hosts && made.when.elapsed() < FRESH;
        let made = match self.tracker.take().filter(fits) {
            Some(made) => made,
            None => Made { hosts, when: Instant::now(), tracker: Tracker::start(self.api, self.address, hosts)? },
        };
        Ok(&self.tracker.insert(made).tracker)
    }

    /// Tells every host that is there. Who cannot be told is found by its silence.
    fn say(&mut self, call: &Call) {
        let line = encode(call);
        for place in self.places.values_mut().filter(|place| !place.done) {
            if let Some(stream) = &mut place.stream {
                let _ = stream.write_all(&line);
            }
        }
    }
}
