"""Channels: the objects below a prefix as files, divided over hosts or not, for scripts to
spoil.
"""

import hashlib

import pytest


def test_a_program_can_write_where_it_likes_and_nothing_stored_changes(jobs):
    jobs.put("channels/writable/a/b.txt", "content")
    script = """
    set -e
    cd /opt/ml/input/data/train
    echo changed > a/b.txt; cat a/b.txt
    echo new > a/new.txt; mkdir sub; mv a/new.txt sub/; rm -r a; ls
    echo x > /tmp/x; echo x > /opt/ml/model/x; echo x > /dev/shm/x; echo x > $HOME/x
    """
    for _ in range(2):
        name = jobs.script(script, channels=[jobs.channel("train", "channels/writable/")])
        jobs.completed(name)
        assert jobs.lines(name) == ["changed", "sub"]
    assert jobs.s3.get_object(Bucket="tests", Key="channels/writable/a/b.txt")["Body"].read() == b"content"


def test_channels_hold_what_lies_below_their_prefix(jobs):
    for key, text in {"one.txt": "1", "deep/er/two.txt": "2", "empty": "", "ü b+c.txt": "3"}.items():
        jobs.put(f"channels/tree/{key}", text)
    jobs.put("channels/tree-not-this-one", "no")
    name = jobs.script(
        "cd /opt/ml/input/data/train; find . -type f | sort", channels=[jobs.channel("train", "channels/tree/")]
    )
    jobs.completed(name)
    assert jobs.lines(name) == ["./deep/er/two.txt", "./empty", "./one.txt", "./ü b+c.txt"]


def test_a_large_file_arrives_whole(jobs):
    content = bytes(range(256)) * (40 << 12)
    jobs.put("channels/large/file.bin", content)
    name = jobs.script(
        "sha256sum < /opt/ml/input/data/train/file.bin", channels=[jobs.channel("train", "channels/large/")]
    )
    jobs.completed(name)
    assert jobs.lines(name) == [f"{hashlib.sha256(content).hexdigest()}  -"]


@pytest.mark.parametrize("distribution, expected", [("ShardedByS3Key", [2, 1]), ("FullyReplicated", [3, 3])])
def test_channels_are_divided_or_not(jobs, distribution, expected):
    for name in "abc":
        jobs.put(f"parts/{name}.txt", name)
    name = jobs.script(
        "ls /opt/ml/input/data/train | wc -l", instances=2, channels=[jobs.channel("train", "parts/", distribution)]
    )
    jobs.completed(name)
    assert [int(jobs.lines(name, host)[0]) for host in ("algo-1", "algo-2")] == expected
