//! Ports of a job's instances. In a network of their own they are the ones that SageMaker's images
//! use; where instances have the network of their machines, each job has a block of its own.

/// What a port is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Frameworks rendezvous there, at the first host.
    Master,
    /// Every instance but the first waits there for what `shoal mpi` is to start.
    Mpi,
    /// A worker of TensorFlow's.
    TensorFlowWorker,
    /// A parameter server of TensorFlow's.
    TensorFlowServer,
    /// A worker of TensorFlow's that mirrors others.
    TensorFlowMirrored,
    /// The first of 32 of a built-in algorithm.
    Algorithm,
}

impl Port {
    /// Its number for a job with this block, or with a network of its own.
    pub fn number(self, first_port: Option<u16>) -> u16 {
        let (in_block, usual) = match self {
            Port::Master => (0, 7777),
            Port::Mpi => (1, 7722),
            Port::TensorFlowWorker => (2, 2222),
            Port::TensorFlowServer => (3, 2223),
            Port::TensorFlowMirrored => (4, 8890),
            Port::Algorithm => (8, 9099),
        };
        first_port.map_or(usual, |first| first + in_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_usual_ones_or_in_the_block() {
        assert_eq!((Port::Master.number(None), Port::Master.number(Some(20_000))), (7777, 20_000));
    }
}
