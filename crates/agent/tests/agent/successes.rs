//! Instances that do their work.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

use shoal_contract::{Job, Paths};
use shoal_link::{Artifact, Endpoint, Phase, Program, RankOutcome, ReportBody};
use shoal_sandbox::{Isolation, Support};

use crate::Test;
use crate::server::Heard;
use crate::stage::{Stage, unpack};

pub(crate) const TESTS: &[Test] = &[
    ("two instances train", two_instances_train),
    ("a built-in runs this executable", a_builtin_runs),
    ("the endpoint is forwarded", the_endpoint_is_forwarded),
    ("output of every kind arrives as lines", output_arrives_as_lines),
];

/// An empty gzipped archive's end, which makes joined parts an archive.
fn end_of_archive() -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[0; 1024]).unwrap();
    gzip.finish().unwrap()
}

fn two_instances_train(support: &Support) {
    let mut stage = Stage::new("two");
    let script = r#"
        set -e
        base=${SAGEMAKER_BASE_DIR:-/opt/ml}
        echo "$SM_CURRENT_HOST of $SM_HOSTS says $GREETING in $(pwd)"
        cat $SM_CHANNEL_TRAIN/a.csv $base/input/data/train/sub/b.csv
        echo changed > $SM_CHANNEL_TRAIN/a.csv || true
        grep -q '"epochs":"3"' $base/input/config/hyperparameters.json
        for i in 1 2 3; do printf '[%d]\tauc:0.%d\tloss:%d\n' $i $i $i; done
        printf 'to stderr: auc:0.75\n' >&2
        mkdir $SM_MODEL_DIR/sub
        echo "model of $SM_CURRENT_HOST" > $SM_MODEL_DIR/sub/$SM_CURRENT_HOST
        ln -s sub/$SM_CURRENT_HOST $SM_MODEL_DIR/link-$SM_CURRENT_HOST
        [ $SM_CURRENT_HOST = algo-1 ] && echo extra > $SM_OUTPUT_DATA_DIR/extra
        if [ -z "$SAGEMAKER_BASE_DIR" ]; then hostname; getent hosts algo-1 algo-2 | wc -l; fi
        echo "addresses: $SHOAL_HOST_ADDRESSES"
        exit 0
    "#;
    for host in [2, 1] {
        stage.start(stage.assignment(host, 2, script));
    }
    let heard: BTreeMap<u32, Heard> =
        [1, 2].map(|host| (host, stage.server.until(host, "the end", |it| it.has(&ReportBody::Uploaded)))).into();
    for (host, heard) in &heard {
        let phases = heard
            .reports
            .iter()
            .filter_map(|report| if let ReportBody::Phase { phase } = report { Some(*phase) } else { None });
        assert_eq!(phases.collect::<Vec<_>>(), [Phase::Downloading, Phase::Training, Phase::Uploading]);
        let lines = heard.lines();
        let is_isolated = support.isolation != Isolation::Processes;
        let code = if is_isolated {
            "/opt/ml".into()
        } else {
            stage.run_dir().canonicalize().unwrap().join(format!("algo-{host}/ml"))
        };
        // The two pipes are read beside each other, so lines of stdout and stderr may change
        // places.
        let first = format!(r#"algo-{host} of ["algo-1","algo-2"] says hello in {}/code"#, code.display());
        for expected in [
            first.as_str(),
            "1,2",
            "3,4",
            "[1]#011auc:0.1#011loss:1",
            "[3]#011auc:0.3#011loss:3",
            "to stderr: auc:0.75",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} in {lines:#?}");
        }
        let addresses = if is_isolated { "" } else { "algo-1=127.0.1.1,algo-2=127.0.1.2" };
        assert!(lines.contains(&format!("addresses: {addresses}")), "{lines:#?}");
        if is_isolated {
            assert!(lines.contains(&format!("algo-{host}")) && lines.contains(&"2".to_owned()), "{lines:#?}");
        }
        let losses: Vec<f64> =
            heard.points().into_iter().filter(|(name, _)| name == "loss").map(|(_, value)| value).collect();
        assert_eq!(losses, [1.0, 2.0, 3.0]);
        let (end, last) = heard.end().unwrap();
        assert_eq!(end.outcome, RankOutcome::Exited(0));
        assert_eq!(
            (end.out_of_memory, end.failure_file, end.stderr_tail.as_str()),
            (false, None, "to stderr: auc:0.75")
        );
        assert_eq!(last.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["auc", "loss"]);
        let output_files = if *host == 1 { 1 } else { 0 };
        for (artifact, files) in [(Artifact::Model, 2), (Artifact::Output, output_files)] {
            let bytes = heard.parts.get(&artifact).map_or(0, Vec::len) as u64;
            assert!(heard.has(&ReportBody::ArtifactSent { artifact, bytes, files }), "{artifact:?} {bytes} {files}");
        }
    }
    assert_eq!(
        fs::read_to_string(stage.dir.path().join("tree/a.csv")).unwrap(),
        "1,2\n",
        "a program changed a stored object"
    );

    let model =
        [heard[&1].parts[&Artifact::Model].clone(), heard[&2].parts[&Artifact::Model].clone(), end_of_archive()]
            .concat();
    let out = unpack(&model, stage.dir.path());
    for host in [1, 2] {
        assert_eq!(
            fs::read_to_string(out.join(format!("sub/algo-{host}"))).unwrap(),
            format!("model of algo-{host}\n")
        );
        assert_eq!(
            fs::read_link(out.join(format!("link-algo-{host}"))).unwrap().to_str(),
            Some(format!("sub/algo-{host}").as_str())
        );
    }
    let output = [heard[&1].parts[&Artifact::Output].clone(), end_of_archive()].concat();
    assert_eq!(fs::read_to_string(unpack(&output, stage.dir.path()).join("extra")).unwrap(), "extra\n");
    stage.release();
}

/// What this executable does as `algorithm NAME`, inside.
pub(crate) fn play_algorithm(name: &str) -> ExitCode {
    let base = std::env::var("SAGEMAKER_BASE_DIR").unwrap_or_else(|_| shoal_contract::BASE.into());
    let paths = Paths::new(base);
    let [hyperparameters, resources, inputs] = ["hyperparameters", "resourceconfig", "inputdataconfig"]
        .map(|file| fs::read(paths.config().join(format!("{file}.json"))).unwrap());
    let job = Job::parse(&hyperparameters, &resources, &inputs).unwrap();
    println!("{name}: rank {} of {}, epochs {}", job.rank, job.world_size(), job.hyperparameters["epochs"]);
    print!("{}", fs::read_to_string(paths.channel("train").join("a.csv")).unwrap());
    let library = std::env::var("GREETING").unwrap();
    println!("library: {}", fs::read_to_string(library).unwrap());
    fs::write(paths.model().join("model"), name).unwrap();
    ExitCode::SUCCESS
}

fn a_builtin_runs(_: &Support) {
    let mut stage = Stage::new("builtin");
    let library = stage.dir.path().join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("lib"), "is seen").unwrap();
    let mut assignment = stage.assignment(1, 1, "");
    // By the environment, so that the algorithm of this test knows where to look.
    assignment.environment.insert("GREETING".into(), library.join("lib").display().to_string());
    let library_dirs = vec![library.display().to_string()];
    assignment.program =
        Program::Builtin { name: "echo".into(), image: "x/echo:1".into(), library_dirs, variables: BTreeMap::new() };
    stage.start(assignment);
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.lines(), ["echo: rank 0 of 1, epochs 3", "1,2", "library: is seen"]);
    stage.release();
}

fn the_endpoint_is_forwarded(_: &Support) {
    let mut stage = Stage::new("endpoint");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server_address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let count = stream.read(&mut request).unwrap();
        assert!(request[..count].starts_with(b"GET /path HTTP/1.1"));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nforwarded").unwrap();
    });
    let python = "import os,urllib.request; print(urllib.request.urlopen(os.environ['AWS_ENDPOINT_URL'] + '/path').read().decode())";
    let mut assignment = stage.assignment(1, 1, &format!("python3 -c \"{python}\" && echo $AWS_ACCESS_KEY_ID"));
    let keys = assignment.endpoint.take().unwrap();
    assignment.endpoint = Some(Endpoint { server_address: Some(server_address), ..keys });
    stage.start(assignment);
    let heard = stage.server.until(1, "the end", |it| it.end().is_some());
    assert_eq!(heard.lines(), ["forwarded", "AK"]);
    stage.release();
}

fn output_arrives_as_lines(_: &Support) {
    let mut stage = Stage::new("lines");
    let mut assignment = stage.assignment(
        1,
        1,
        r"printf 'bad \377\n\nred \033[31m\r\n'; head -c 300000 /dev/zero | tr '\0' x; printf '\nprogress 1%%\rprogress 2%%\nno newline auc:7'",
    );
    assignment.metric_definitions.push(shoal_link::MetricDefinition { name: "broken".into(), regex: "(".into() });
    stage.server.set_clock(1000);
    stage.start(assignment);
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    let lines = heard.lines();
    let (cut, rest) = (256 << 10, 300_000 - (256 << 10));
    let expected = [
        "bad \u{fffd}",
        "",
        "red #033[31m",
        &"x".repeat(cut),
        &"x".repeat(rest),
        "progress 1%#015progress 2%",
        "no newline auc:7",
    ];
    assert!(lines == expected, "{:?}", lines.iter().map(|line| &line[..line.len().min(30)]).collect::<Vec<_>>());
    assert_eq!(heard.points(), [("auc".to_owned(), 7.0)]);
    let notes = heard.notes();
    assert!(notes.iter().any(|note| note.starts_with("metric broken is not collected: ")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains(" s ahead of the server's: ")), "{notes:?}");
    assert_eq!(heard.parts.len(), 0, "there is no artifact");
    stage.release();
}
