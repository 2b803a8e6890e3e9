//! Hosts with caches of their own, over real connections, and a server that counts what it sends.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use shoal_environments::{Cache, Images, Source};
use shoal_link::{
    Channel, Decoder, Frame, Limits, MachineNetwork, ManifestEntry, OutputCompression, ToAgent, ToServer, encode,
};

use super::*;
use crate::inputs::Part;
use crate::part_files::PART;
use crate::server::Server;
use crate::{Libraries, LibraryFinder, ObjectCache};

const SIZE: u64 = WORTH_IT + 5 * PART + 77;
const SMALL: &[u8] = b"small";

/// What an object's bytes are.
fn content(id: &str) -> Vec<u8> {
    match id {
        "aa01" => (0..SIZE).map(|at| (at % 251) as u8).collect(),
        _ => SMALL.to_vec(),
    }
}

fn sha256(content: &[u8]) -> String {
    hex_simd::encode_to_string(Sha256::digest(content), AsciiCase::Lower)
}

/// Answers agents until the test ends.
fn serve(listener: &UnixListener, sent: &Arc<AtomicU64>) {
    for stream in listener.incoming() {
        let sent = sent.clone();
        thread::spawn(move || answer(stream.unwrap(), &sent));
    }
}

fn answer(mut stream: UnixStream, sent: &AtomicU64) -> io::Result<()> {
    use std::io::{Read, Write};
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; 4096]);
    let objects = BTreeMap::from(["aa01", "bb01"].map(|id| (id.to_owned(), content(id))));
    loop {
        let Some(Frame::Message(message)) = decoder.next::<ToServer>().map_err(io::Error::other)? else {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => decoder.push(&buffer[..count]),
            }
            continue;
        };
        let part = |id: &str, offset: u64, length: u64| {
            let end = objects[id].len().min((offset + length) as usize);
            objects[id][offset as usize..end].to_vec()
        };
        let answers = match message {
            ToServer::List { .. } => {
                let entry = |(id, content): (&String, &Vec<u8>)| ManifestEntry {
                    path: id.clone(),
                    id: id.clone(),
                    size: content.len() as u64,
                    text: None,
                };
                vec![Frame::Message(ToAgent::Manifest { entries: objects.iter().map(entry).collect(), is_last: true })]
            }
            ToServer::FetchPart { id, offset, length, .. } => {
                let part = part(&id, offset, length);
                sent.fetch_add(part.len() as u64, Ordering::Relaxed);
                let sha256 = sha256(&part);
                vec![Frame::Chunk(part), Frame::Message(ToAgent::ObjectEnds { sha256 })]
            }
            ToServer::PartSum { id, offset, length, .. } => {
                vec![Frame::Message(ToAgent::ObjectEnds { sha256: sha256(&part(&id, offset, length)) })]
            }
            _ => vec![Frame::Message(ToAgent::Ready)],
        };
        for frame in answers {
            stream.write_all(&encode(&frame).unwrap())?;
        }
    }
}

struct Job {
    dir: tempfile::TempDir,
    sent: Arc<AtomicU64>,
    hosts: u32,
    /// Hosts that are on one node, and share its cache.
    per_node: u32,
}

impl Job {
    fn new(hosts: u32) -> Self {
        Self::packed(hosts, 1)
    }

    fn packed(hosts: u32, per_node: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (listener, sent) = (UnixListener::bind(dir.path().join("socket")).unwrap(), Arc::<AtomicU64>::default());
        let counted = sent.clone();
        thread::spawn(move || serve(&listener, &counted));
        Self { dir, sent, hosts, per_node }
    }

    fn options(&self, host: u32, token: &str) -> Options {
        let at = |name: &str| self.dir.path().join(name);
        Options {
            server: Server::Socket(at("socket")),
            objects: ObjectCache::new(self.objects(host), 1 << 30),
            shared: None,
            libraries: LibraryFinder(Arc::new(|_| Ok(Libraries::default()))),
            attempt: "job-1".to_owned(),
            host,
            token: token.to_owned(),
            run_dir: at("run"),
            data_id: "test".to_owned(),
            program: PathBuf::new(),
            environments: Cache::new(at("environments"), Source::of_this_process(None)),
            python_package: None,
            images: Images::new(at("images")),
        }
    }

    fn objects(&self, host: u32) -> PathBuf {
        self.dir.path().join(format!("node-{}", (host - 1) / self.per_node))
    }

    fn assignment(&self, host: u32) -> Assignment {
        let channel = Channel {
            name: "train".to_owned(),
            tree: Input::Objects(ObjectTree { tree: "tree".to_owned() }),
            delivery: Delivery::Files,
            content_type: None,
            distribution: "FullyReplicated".to_owned(),
            record_wrapper: "None".to_owned(),
        };
        let limits = Limits {
            memory_bytes: 1 << 30,
            together_bytes: None,
            cpus: 1,
            cpu_weight: 100,
            pids: 100,
            disk_bytes: None,
            gpus: Vec::new(),
        };
        Assignment {
            job_name: "job".to_owned(),
            job_arn: "arn".to_owned(),
            region: "us-east-1".to_owned(),
            host,
            hosts: (1..=self.hosts).map(|host| format!("algo-{host}")).collect(),
            instance_type: "ml.m5.large".to_owned(),
            groups: Vec::new(),
            hyperparameters: BTreeMap::new(),
            environment: BTreeMap::new(),
            channels: vec![channel],
            program: Program::Image { arguments: Vec::new() },
            python: None,
            root: None,
            metric_definitions: Vec::new(),
            objective: None,
            limits,
            endpoint: None,
            egress: None,
            checkpoint: None,
            intermediate: None,
            debug_hook: None,
            rules: Vec::new(),
            profiler_rules: Vec::new(),
            tensor_board: None,
            output_compression: OutputCompression::Gzip,
            lease_s: 60,
            grace_s: 1,
            resource: None,
            elastic: None,
            warm: false,
            sampling: None,
            profiler: None,
            machine_network: Some(MachineNetwork { first_port: 16_384, has_sums: true }),
        }
    }

    /// All hosts at once; `place` may change where they report to be.
    fn run(&self, place: &(dyn Fn(u32, Place) -> Place + Sync)) -> Vec<Option<String>> {
        let started = (1..=self.hosts).map(|host| {
            let passing = Passing::start(&self.options(host, "00ff"), &self.assignment(host), Ipv4Addr::LOCALHOST);
            passing.ok().flatten().unwrap()
        });
        let started = Vec::from_iter(started);
        let places = (1..)
            .zip(&started)
            .map(|(host, passing)| place(host, Place { address: Ipv4Addr::LOCALHOST, passes: Some(passing.passes()) }));
        let places = Vec::from_iter(places);
        thread::scope(|scope| {
            let gather = |(host, passing): (u32, &'_ Passing)| {
                let mut news = || News::Places(places.clone());
                passing.gather(&self.options(host, "00ff"), &self.assignment(host), &mut news)
            };
            let all = Vec::from_iter((1..).zip(&started).map(|it| scope.spawn(move || gather(it))));
            all.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    fn check(&self, host: u32) {
        for id in ["aa01", "bb01"] {
            let expected = content(id);
            let file = self.objects(host).join(id).join(sha256(&expected));
            assert!(fs::read(&file).unwrap_or_default() == expected, "host {host}: {}", file.display());
        }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

#[test]
fn the_server_sends_everything_once() {
    let job = Job::new(3);
    let notes = job.run(&|_, place| place);
    (1..=3).for_each(|host| job.check(host));
    assert_eq!(job.sent(), SIZE + SMALL.len() as u64);
    let is_told = |note: &Option<String>| note.as_ref().is_some_and(|it| it.contains("from other hosts of the job"));
    assert!(notes.iter().all(is_told), "{notes:?}");
    assert_eq!(job.run(&|_, place| place), [None, None, None], "all of it is there");
}

#[test]
fn hosts_of_one_node_fill_its_cache_together() {
    let job = Job::packed(4, 2);
    job.run(&|_, place| place);
    (1..=4).for_each(|host| job.check(host));
    // Two that look for a part at the same time may both fetch it.
    assert!(job.sent() < 2 * SIZE, "{}", job.sent());
}

#[test]
fn a_host_that_is_gone_or_shows_another_certificate_is_not_needed() {
    let job = Job::new(3);
    let notes = job.run(&|host, place| match (host, place.passes.clone()) {
        (2, Some(_)) => Place { passes: Some((1, "00".repeat(32))), ..place },
        (3, Some((port, _))) => Place { passes: Some((port, "00".repeat(32))), ..place },
        _ => place,
    });
    (1..=3).for_each(|host| job.check(host));
    // Only the first one is asked by the others.
    assert!(job.sent() > SIZE && job.sent() < 3 * SIZE, "{} {notes:?}", job.sent());
}

#[test]
fn what_comes_damaged_is_not_taken() {
    let job = Job::new(2);
    // A file that has changed on the second host's disk.
    let damaged = job.objects(2).join("aa01");
    fs::create_dir_all(&damaged).unwrap();
    fs::write(damaged.join(sha256(&content("aa01"))), vec![0; usize::try_from(SIZE).unwrap()]).unwrap();
    job.run(&|_, place| place);
    job.check(1);
    assert!(job.sent() >= SIZE);
}

#[test]
fn a_stranger_gets_nothing() {
    let job = Job::new(2);
    let passing = Passing::start(&job.options(1, "00ff"), &job.assignment(1), Ipv4Addr::LOCALHOST);
    let passing = passing.ok().flatten().unwrap();
    let place = Place { address: Ipv4Addr::LOCALHOST, passes: Some(passing.passes()) };
    let error = Peer::connect(&job.options(2, "00fe"), &place).err().unwrap();
    assert_eq!(error.to_string(), "not of this attempt");
    let mut friend = Peer::connect(&job.options(2, "00ff"), &place).unwrap();
    let tree = &ObjectTree { tree: "tree".to_owned() };
    let other = Part { tree, id: "cc01", offset: 0, length: 1 };
    assert!(matches!(friend.part(other), Ok(Given::Absent)), "it is of another job");
    let own = Part { tree, id: "bb01", offset: 0, length: SMALL.len() as u64 };
    assert!(matches!(friend.part(own), Ok(Given::Later)));
}

#[test]
fn little_is_not_worth_it() {
    let job = Job::new(2);
    let starts = |change: &dyn Fn(&mut Assignment)| {
        let mut assignment = job.assignment(1);
        change(&mut assignment);
        Passing::start(&job.options(1, "00ff"), &assignment, Ipv4Addr::LOCALHOST).ok().flatten().is_some()
    };
    assert!(starts(&|_| {}));
    assert!(!starts(&|it| it.hosts.truncate(1)));
    assert!(!starts(&|it| it.machine_network = None));
    assert!(!starts(&|it| it.channels[0].distribution = "ShardedByS3Key".to_owned()), "each host has its own");
    assert!(!starts(&|it| it.channels[0].delivery = Delivery::FilesAsRead));
    assert!(!starts(&|it| it.channels[0].tree = Input::Local(Path::new("/").display().to_string())));
}
