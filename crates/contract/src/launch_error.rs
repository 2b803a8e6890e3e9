//! Why a script cannot be launched as its job asks.

/// A launch that cannot be done. The text is for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Several instances that have no hosts of their own.
    #[error(
        "MPI: {0} instances are plain processes of one host to this machine, and mpirun cannot tell them apart; use \
         one instance \
         with more processes_per_host, or see what `shoal doctor` says of isolation"
    )]
    MpiNeedsHosts(usize),
    /// A number of processes that is none.
    #[error("{0} is \"{1}\", which is no number of processes")]
    MpiNumber(String, String),
    /// `SHOAL_PROCESSES_PER_INSTANCE` is not a number of processes.
    #[error("SHOAL_PROCESSES_PER_INSTANCE is \"{0}\"; give a number of processes, such as 8")]
    ProcessesNumber(String),
    /// Options of mpirun that are not words.
    #[error("custom_mpi_options is \"{0}\", and a quote in it is not closed")]
    MpiOptions(String),
    /// torchrun starts Python files.
    #[error("{0}: torchrun starts a Python script that ends in .py, beside which there is no setup.py")]
    NoPythonScript(String),
    /// Ranks that cannot lose and gain peers.
    #[error(
        "{0} needs all of its instances: leave the tag shoal:min-instances out, or use torchrun with \
         shoal.torch.elastic, or elastic Horovod \
         by the distribution mpi"
    )]
    NotElastic(&'static str),
    /// Settings of mpirun, where Horovod's launcher starts the workers.
    #[error(
        "{0} is mpirun's, and elastic Horovod has a launcher of its own: leave it out, or the tag shoal:min-instances"
    )]
    NotOfHorovod(&'static str),
}
