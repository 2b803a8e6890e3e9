"""Pipe mode as SageMaker documents it, manifests of both kinds, and file systems: what unchanged
programs find.
"""

import gzip
import hashlib
import json
import os

import pytest
from house import BUCKET
from jobs import XGBOOST, Jobs

# What training scripts do in Pipe mode: one pipe for each epoch, which they wait for.
READ = """
import os, sys, time
def epoch(channel, number, most=-1):
    path = f"/opt/ml/input/data/{channel}_{number}"
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb", buffering=0) as pipe:
        content = b""
        while most < 0 or len(content) < most:
            part = pipe.read(1 << 20)
            if not part:
                break
            content += part
        return content
def records(content):
    import struct
    while content:
        magic, length = struct.unpack("<II", content[:8])
        assert magic == 0xced7230a, hex(magic)
        yield content[8:8 + length]
        content = content[8 + (length + 3) // 4 * 4:]
"""
LEFT = "\nprint(sorted(os.listdir('/opt/ml/input/data')))"


def pipe(jobs, prefix, name="train", **changes):
    source = changes.pop("source", {})
    channel = jobs.channel(name, prefix)
    channel["DataSource"]["S3DataSource"].update(source)
    return {**channel, "InputMode": "Pipe", **changes}


def notes(jobs, name):
    """What is said of the job beside the program's own lines."""
    return [line for lines in jobs.logs(name).values() for line in lines if line.startswith("[shoal] ")]


def test_each_epoch_has_a_pipe(jobs):
    for number in range(8):
        jobs.put(f"pipes/plain/{number}.csv", f"{number}\n" * 300_000)
    whole = "".join(f"{number}\n" * 300_000 for number in range(8)).encode()
    text = f"""{READ}
import hashlib, json
print(json.load(open("/opt/ml/input/config/inputdataconfig.json"))["train"]["TrainingInputMode"])
seen = [epoch("train", 0), epoch("train", 1, 6)[:6], epoch("train", 2)]
print([len(content) for content in seen], hashlib.sha256(seen[2]).hexdigest())
mixed = [epoch("mixed", number).replace(b"\\n", b"")[::300_000].decode() for number in range(3)]
print(*mixed)
{LEFT}"""
    channels = [pipe(jobs, "pipes/plain/"), pipe(jobs, "pipes/plain/", "mixed", ShuffleConfig={"Seed": 3})]
    names = [jobs.python(text, channels=channels) for _ in range(2)]
    for name in names:
        jobs.completed(name)
    mode, seen, mixed, left = jobs.lines(names[0])
    assert mode == "Pipe" and seen == f"[{len(whole)}, 6, {len(whole)}] {hashlib.sha256(whole).hexdigest()}"
    assert [sorted(order) for order in mixed.split()] == [list("01234567")] * 3
    assert len(set(mixed.split())) == 3, "each epoch has an order of its own"
    assert left == "['code', 'mixed_3', 'mixed_4', 'train_3', 'train_4']"
    assert jobs.lines(names[1])[2] == mixed, "the same seed gives the same order"
    assert jobs.describe(names[0])["InputDataConfig"][2]["ShuffleConfig"] == {"Seed": 3}
    assert "in 2 epochs, and in 1 that the program closed" in " ".join(notes(jobs, names[0]))


def test_objects_are_decompressed_wrapped_and_shared_out(jobs):
    contents = {f"{number}.gz": f"object {number} ".encode() * number for number in range(7)}
    for key, content in contents.items():
        jobs.put(f"pipes/gzip/{key}", gzip.compress(content))
    text = f"""{READ}
print(*[sorted(map(len, records(epoch("train", number)))) for number in range(3)])"""
    source = {"S3DataDistributionType": "ShardedByS3Key"}
    wrapped = {"CompressionType": "Gzip", "RecordWrapperType": "RecordIO", "ShuffleConfig": {"Seed": 1}}
    name = jobs.python(text, instances=2, channels=[pipe(jobs, "pipes/gzip/", source=source, **wrapped)])
    jobs.completed(name)
    epochs = [
        json.loads(f"[{line.replace('] [', '],[')}]")
        for host in ("algo-1", "algo-2")
        for line in jobs.lines(name, host)
    ]
    for one, other in zip(*epochs):
        assert sorted(one + other) == sorted(map(len, contents.values())), "each object is read on one instance"
    assert len({str(epoch) for epoch in epochs[0]}) > 1, "others in the next epoch"


def test_an_augmented_manifest_is_streamed_by_its_attributes(jobs):
    for number in range(3):
        jobs.put(f"pipes/images/{number}.png", bytes([number]) * 5)
    lines = [
        {"image-ref": f"s3://tests/pipes/images/{number}.png", "class": number, "box": {"top": [number]}, "unused": "x"}
        for number in range(3)
    ]
    jobs.put("pipes/augmented.manifest", "".join(json.dumps(line) + "\n" for line in lines))
    source = {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["image-ref", "class", "box"]}
    channel = pipe(jobs, "pipes/augmented.manifest", source=source, RecordWrapperType="RecordIO")
    name = jobs.python(f'{READ}\nprint(list(records(epoch("train", 0))))', channels=[channel])
    jobs.completed(name)
    expected = [part for number in range(3) for part in (bytes([number]) * 5, b"%d" % number, b'{"top":[%d]}' % number)]
    assert jobs.lines(name) == [str(expected)]


def test_pipes_end_no_job_wrongly_and_hide_no_damage(jobs):
    jobs.put("pipes/damaged/a.gz", gzip.compress(b"0123456789" * 100_000)[:1000])
    jobs.put("pipes/plain2/a", b"0" * (4 << 20))
    damaged = jobs.python(
        f'{READ}\nprint(len(epoch("train", 0)))', channels=[pipe(jobs, "pipes/damaged/", CompressionType="Gzip")]
    )
    never = jobs.command("echo done", InputDataConfig=[pipe(jobs, "pipes/plain2/")])
    slow = jobs.command(
        "head -c 5 /opt/ml/input/data/train_0; echo; exec 3< /opt/ml/input/data/train_1; sleep 60",
        InputDataConfig=[pipe(jobs, "pipes/plain2/")],
    )
    jobs.saying(slow, "00000")
    jobs.sagemaker.stop_training_job(TrainingJobName=slow)
    assert jobs.wait(slow, 30)["TrainingJobStatus"] == "Stopped"
    jobs.completed(never)
    assert "no pipe of it was opened" in " ".join(notes(jobs, never))
    reason = jobs.failed(damaged)
    assert reason.startswith("ClientError: algo-1: channel train: a.gz is not gzip"), reason


def test_xgboost_reads_the_data_of_pipes(jobs):
    jobs.put("pipes/rows/a.csv", "".join(f"{row % 2},{row},{row % 7}\n" for row in range(100)))
    request = jobs.request(
        "xgboost",
        AlgorithmSpecification={"TrainingImage": XGBOOST, "TrainingInputMode": "Pipe"},
        HyperParameters={"num_round": "2"},
        InputDataConfig=[jobs.channel("train", "pipes/rows/", content_type="text/csv")],
    )
    jobs.sagemaker.create_training_job(**request)
    name = request["TrainingJobName"]
    jobs.completed(name)
    assert "xgboost-model" in jobs.artifact(name)
    assert jobs.describe(name)["AlgorithmSpecification"]["TrainingInputMode"] == "Pipe"


SHOW = """
import json, pathlib
for name in ("whole", "listed", "parts", "listed_parts"):
    top = pathlib.Path("/opt/ml/input/data", name)
    files = sorted(path for path in top.rglob("*") if path.is_file())
    print(json.dumps({str(path.relative_to(top)): path.read_text() for path in files}))
"""


def fast_files(jobs):
    """Runs a job of two instances on channels in FastFile mode: all objects, those of a manifest,
    and both in parts. Checks what each instance has found; gives the job's name.
    """
    folder = f"fast-files/{os.urandom(8).hex()}"
    everything = {key: f"{folder} {key}" for key in ("a", "b", "c/d", "c/e", "c/f/g")}
    for key, content in everything.items():
        jobs.put(f"{folder}/in/{key}", content)
    listed = ["b", "c/d", "c/f/g"]
    manifest = jobs.put(f"{folder}/m", json.dumps([{"prefix": f"s3://{BUCKET}/{folder}/in/"}, *listed]))
    of_manifest = {"S3DataType": "ManifestFile", "S3Uri": manifest}
    in_parts = {"S3DataDistributionType": "ShardedByS3Key"}
    sources = {"whole": {}, "listed": of_manifest, "parts": in_parts, "listed_parts": {**of_manifest, **in_parts}}
    name = jobs.python(
        SHOW,
        instances=2,
        channels=[pipe(jobs, f"{folder}/in/", name, source=it, InputMode="FastFile") for name, it in sources.items()],
    )
    jobs.completed(name)
    seen = [dict(zip(sources, map(json.loads, jobs.lines(name, host)))) for host in ("algo-1", "algo-2")]
    of_list = {key: everything[key] for key in listed}
    for channel, expected in [("whole", everything), ("listed", of_list)]:
        assert [it[channel] for it in seen] == [expected] * 2
    for channel, expected in [("parts", everything), ("listed_parts", of_list)]:
        one, other = (it[channel] for it in seen)
        assert one and other and not set(one) & set(other), (one, other)
        assert one | other == expected
    return name


def test_fast_file_shows_manifests_and_parts(jobs):
    name = fast_files(jobs)
    assert not any("FastFile" in line for line in notes(jobs, name)), "nothing is fetched for links"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"InputMode": "File", "CompressionType": "Gzip"}, "File mode only supports None"),
        ({"InputMode": "FastFile", "RecordWrapperType": "RecordIO"}, "for Pipe mode only"),
        ({"source": {"S3DataType": "AugmentedManifestFile"}}, "names of the attributes"),
        ({"source": {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["a"]}, "InputMode": "File"}, "to Pipe"),
        (
            {"source": {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["a"]}, "InputMode": "FastFile"},
            "to Pipe",
        ),
        (
            {"source": {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["b"], "S3Uri": "s3://tests/pipes/m"}},
            'line 1: it has no attribute "b"',
        ),
        (
            {
                "source": {
                    "S3DataType": "AugmentedManifestFile",
                    "AttributeNames": ["a-ref"],
                    "S3Uri": "s3://tests/pipes/m",
                }
            },
            "no object s3://tests/pipes/none",
        ),
        ({"source": {"S3DataType": "ManifestFile", "S3Uri": "s3://tests/pipes/m"}}, "is no manifest"),
        ({"source": {"S3Uri": "s3://tests/pipes/none/"}}, "No S3 objects found"),
        ({"image": XGBOOST, "RecordWrapperType": "RecordIO"}, "xgboost reads text files here"),
        ({"image": XGBOOST, "CompressionType": "Gzip"}, "decompress the objects"),
        ({"of_system": {"FileSystemId": "fs-00000001"}}, "[file_systems] fs-00000001"),
        ({"of_system": {"DirectoryPath": "/../etc"}}, "'..'"),
        ({"of_system": {}, "InputMode": "Pipe"}, "InputMode to File"),
    ],
)
def test_refused_at_creation(jobs, change, words):
    jobs.put("pipes/m", '{"a": 1, "a-ref": "s3://tests/pipes/none"}')
    change = dict(change)
    image, system = change.pop("image", "shoal/host"), change.pop("of_system", None)
    channel = pipe(jobs, "pipes/m", **change)
    if system is not None:
        efs = {
            "FileSystemId": "fs-0123456a",
            "FileSystemAccessMode": "ro",
            "FileSystemType": "EFS",
            "DirectoryPath": "/",
        }
        channel = {"InputMode": "File", **channel, "DataSource": {"FileSystemDataSource": {**efs, **system}}}
        channel["InputMode"] = change.get("InputMode", "File")
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File"}
    if image == "shoal/host":
        algorithm["ContainerEntrypoint"] = ["true"]
    request = jobs.request("refused", AlgorithmSpecification=algorithm, InputDataConfig=[channel])
    with pytest.raises(jobs.sagemaker.exceptions.ClientError) as error:
        jobs.sagemaker.create_training_job(**request)
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and words in answer["Message"], answer


def test_file_systems_are_directories_that_the_owner_allows(new_house, tmp_path):
    shared = tmp_path / "srv"
    (shared / "images/2026").mkdir(parents=True)
    (shared / "images/2026/a.txt").write_text("content")
    (shared / "secret").symlink_to("/etc")
    (shared / "images").chmod(0o755)
    (shared / "images/2026").chmod(0o777)
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    jobs = Jobs(new_house("--file-systems", f"fs-0123456a={shared}"))

    def create(directory, mode):
        system = {
            "FileSystemId": "fs-0123456a",
            "FileSystemAccessMode": mode,
            "FileSystemType": "FSxLustre",
            "DirectoryPath": directory,
        }
        line = "cd /opt/ml/input/data/train; cat a.txt; echo; (echo new > b.txt) 2>&1 | sed 's/.*: //'"
        channel = {"ChannelName": "train", "DataSource": {"FileSystemDataSource": system}}
        return jobs.command(line, InputDataConfig=[channel])

    read, written = create("/images/2026", "ro"), create("/images//2026/", "rw")
    jobs.completed(read)
    jobs.completed(written)
    assert jobs.lines(read)[0] == "content" and "Read-only" in jobs.lines(read)[1]
    assert jobs.lines(written) == ["content"] and (shared / "images/2026/b.txt").read_text() == "new\n"
    for directory, words in [("/secret", "symbolic link"), ("/none", "no directory /none")]:
        with pytest.raises(jobs.sagemaker.exceptions.ClientError, match=words):
            create(directory, "ro")
    assert (shared / "images/2026/a.txt").exists(), "nothing of it is removed with the job"
