//! Capacity of several nodes.

use shoal_plane::{Capacity, Node, Packing, Quotas};

use crate::script::{GIB, check};

fn node(name: &str, cpus: u32, gib: u64, gpus: u32, instances: u32) -> Node {
    Node { name: name.to_owned(), cpus, memory_bytes: gib * GIB, gpus, instances, has_scheduler: false }
}

fn two(packing: Packing) -> Capacity {
    Capacity {
        nodes: vec![node("a", 4, 16, 0, 4), node("b", 8, 32, 2, 4)],
        spans: false,
        packing,
        quotas: Quotas::default(),
    }
}

#[test]
fn a_gang_is_on_one_node_that_has_room_for_it() {
    check(
        two(Packing::Promise),
        "
        0 create a m5.xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ua-1 on 1
        1 create b m5.xlarge 2
            b created: Starting the training job
            b launched ub-1: 2 x 4 CPUs, 16.0 GiB, GPUs [], on b b, lease 90000 s: Preparing the instances for training (on node b)
            -> launch ub-1 on 2
        2 create c g5.xlarge 1
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 16.0 GiB of memory, 0.0 GiB free on node b; 1st in the queue
        3 create d m5.xlarge 1
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 16.0 GiB of memory, 0.0 GiB free on node a; 2nd in the queue
        4 create e m5.large 5
            refused: InstanceCount is 5 and all instances of a training job run on one node, and each node runs at most 4 instances at once: ask for fewer instances
        5 create f m5.4xlarge 4
            f created: Starting the training job
            f Pending: Waiting for capacity: needs 32.0 GiB of memory, 0.0 GiB free on node b; 3rd in the queue
        6 create g g5.12xlarge 1
            refused: 1 of ml.g5.12xlarge needs 4 A10G GPUs and the node that has most of them has 2: choose an instance type without GPUs, or give this type none in instance-types.txt and start the server again
        7 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        8 released ua-1
            a released
            d launched ud-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ud-1 on 1
        9 stop b
            b ended Stopped/Stopped: Training job stopped
            b release
            -> release ub-1
        10 released ub-1
            b released
            c launched uc-1: 1 x 4 CPUs, 16.0 GiB, GPUs [0], on b, lease 90000 s: Preparing the instances for training (on node b)
            -> launch uc-1 on 1
    ",
    );
}

#[test]
fn a_gang_that_may_is_on_several_nodes() {
    check(
        Capacity {
            nodes: vec![node("a", 4, 24, 1, 4), node("b", 8, 32, 2, 4)],
            spans: true,
            packing: Packing::Promise, quotas: Quotas::default() },
        "
        0 create a g5.xlarge 3
            a created: Starting the training job
            a launched ua-1: 3 x 4 CPUs, 16.0 GiB, GPUs [0, 1, 0], on b b a, lease 90000 s: Preparing the instances for training (2 instances on node b, 1 instance on node a)
            -> launch ua-1 on 3
        1 create b m5.large 2
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
        2 create c g5.xlarge 4
            refused: 4 of ml.g5.xlarge need 4 A10G GPUs and all nodes together have 3: choose an instance type without GPUs, or give this type none in instance-types.txt and start the server again
        3 create d m5.4xlarge 4
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 48.0 GiB of memory, 8.0 GiB free; 2nd in the queue
        4 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        5 released ua-1
            a released
            b launched ub-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], on a a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ub-1 on 2
        6 stop b
            b ended Stopped/Stopped: Training job stopped
            b release
            -> release ub-1
        7 released ub-1
            b released
            d launched ud-1: 4 x 2 CPUs, 12.0 GiB, GPUs [], on a a b b, lease 90000 s: Preparing the instances for training (2 instances on node a, 2 instances on node b; ml.m5.4xlarge capped to its nodes: each instance has 4 CPUs instead of 16 and 12.0 GiB of memory instead of 64.0 GiB)
            -> launch ud-1 on 4
    ",
    );
}

#[test]
fn what_waits_for_a_node_is_not_delayed_on_it() {
    check(
        two(Packing::Promise),
        "
        0 create z m5.xlarge 1
            z created: Starting the training job
            z launched uz-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch uz-1 on 1
        0 create a g5.xlarge 1 max_runtime=1000
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [0], on b, lease 4600 s: Preparing the instances for training (on node b)
            -> launch ua-1 on 1
        1 create b g5.xlarge 2
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 2 GPUs, 1 free on node b; 1st in the queue
        # It is over before the head needs the node.
        2 create c m5.large 1 max_runtime=60
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], on b, lease 3660 s: Preparing the instances for training (on node b)
            -> launch uc-1 on 1
        # It is not, and is started on the other node only.
        3 create d m5.large 1 max_runtime=90000
            d created: Starting the training job
            d Pending: Waiting for capacity: what is free is kept for the training job at the head of the queue; 2nd in the queue
        4 stop z
            z ended Stopped/Stopped: Training job stopped
            z release
            -> release uz-1
        5 released uz-1
            z released
            d launched ud-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], on a, lease 93600 s: Preparing the instances for training (on node a)
            -> launch ud-1 on 1
    ",
    );
}

#[test]
fn memory_is_given_back_on_the_node_that_lacks_it() {
    check(
        two(Packing::Use),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ua-1 on 1
        # Its limits are more than all that node a has.
        1 create b m5.xlarge 2
            b created: Starting the training job
            b launched ub-1: 2 x 4 CPUs, 16.0 GiB, GPUs [], on b b, lease 90000 s: Preparing the instances for training (on node b)
            -> launch ub-1 on 2
        2 create c m5.large 1
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch uc-1 on 1
        3 create d m5.large 2
            d created: Starting the training job
            d launched ud-1: 2 x 1 CPUs, 8.0 GiB, GPUs [], on a a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ud-1 on 2
        4 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        5 uc-1/1 training
            c algo-1 Training
            c Downloading: Downloading input data
            c Training: Training image download completed. Training in progress.
        6 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        7 ub-1/2 training
            b algo-2 Training
        8 ud-1/1 training
            d algo-1 Training
            d Downloading: Downloading input data
            d Training: Training image download completed. Training in progress.
        9 ud-1/2 training
            d algo-2 Training
        10 measured a:2 ua-1=7 ub-1=20 uc-1=7 ud-1=8
            d evicted, using 8 GiB
            -> stop ud-1 [1, 2] within 10 s: the machine's memory ran short, and it started after others that run
        11 measured b:2 ua-1=7 ub-1=20 ud-1=10
    ",
    );
}

#[test]
fn the_kernel_of_a_node_ends_programs_of_its_own() {
    check(
        two(Packing::Use),
        "
        0 create a m5.xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ua-1 on 1
        1 create b m5.xlarge 2
            b created: Starting the training job
            b launched ub-1: 2 x 4 CPUs, 16.0 GiB, GPUs [], on b b, lease 90000 s: Preparing the instances for training (on node b)
            -> launch ub-1 on 2
        2 create c m5.xlarge 1
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 16.0 GiB, GPUs [], on a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch uc-1 on 1
        3 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        4 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        5 ub-1/2 training
            b algo-2 Training
        6 uc-1/1 training
            c algo-1 Training
            c Downloading: Downloading input data
            c Training: Training image download completed. Training in progress.
        7 uc-1/1 oom used=12
            c algo-1 ended: killed
            c evicted, using 12 GiB
            c release
            -> release uc-1
        # It was alone on its node for long enough.
        8 ub-1/1 oom used=29
            b algo-1 ended: killed
    ",
    );
}

#[test]
fn instances_are_given_up_and_added_where_they_are_needed() {
    check(
        two(Packing::Promise),
        "
        0 create a m5.large 2 min=1
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], on a a, lease 90000 s: Preparing the instances for training (on node a)
            -> launch ua-1 on 2
        1 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        2 ua-1/2 training
            a algo-2 Training
            -> members of ua-1 are [1, 2]
        3 create b m5.large 4 min=1
            b created: Starting the training job
            b launched ub-1: 4 x 2 CPUs, 8.0 GiB, GPUs [], on b b b b, lease 90000 s: Preparing the instances for training (on node b)
            -> launch ub-1 on 4
        4 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        5 ub-1/2 training
            b algo-2 Training
        6 ub-1/3 training
            b algo-3 Training
        7 ub-1/4 training
            b algo-4 Training
            -> members of ub-1 are [1, 2, 3, 4]
        # Node a has no GPU, so nothing is given up there.
        8 create c g5.xlarge 1
            c created: Starting the training job
            b interrupted [3, 4]: Training on 2 of 4 instances: algo-3, algo-4 were needed by the training job at the head of the queue
            -> members of ub-1 are [1, 2]
            -> interrupt ub-1 [3, 4] after 5 s within 120 s
            c Pending: Waiting for capacity: needs 16.0 GiB of memory, 0.0 GiB free on node b; 1st in the queue
        9 ub-1/3 exit 0
            b vacated [3]: left
            -> clear ub-1 [3]
        10 ub-1/4 exit 0
            b vacated [4]: left
            -> clear ub-1 [4]
        11 cleared ub-1 3
            b cleared [3], until None
        12 cleared ub-1 4
            b cleared [4], until None
            c launched uc-1: 1 x 2 CPUs, 16.0 GiB, GPUs [0], on b, lease 90000 s: Preparing the instances for training (on node b)
            -> launch uc-1 on 1
        13 stop c
            c ended Stopped/Stopped: Training job stopped
            c release
            -> release uc-1
        14 released uc-1
            c released
            b added [3, 4] on b b, GPUs [[], []]: Training on 2 of 4 instances: algo-3, algo-4 are being added
            -> launch ub-1 [3, 4] to join
            -> members of ub-1 are [1, 2, 3, 4]
    ",
    );
}
