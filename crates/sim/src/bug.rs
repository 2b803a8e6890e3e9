//! Errors that a driver of the machines could have, planted on request: a simulation that does not
//! find them finds nothing.

/// What the simulated server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A turn now and then is not journalled.
    SkippedAppend,
    /// Clients are answered before the append.
    EarlyAnswer,
    /// An agent's report is acknowledged before the core has made it durable.
    EarlyAcknowledgement,
    /// A report that comes again is taken again.
    RepeatedReport,
    /// After a restart a launch starts agents that run already.
    DoubleLaunch,
    /// A stop is told to connected agents only, and does not stand.
    LostStop,
    /// After a restart nothing is done that was left undone.
    ForgottenActions,
    /// After a restart attempts that run are not adopted.
    ForgottenAttempts,
    /// After a restart the directories of attempts that are over stay.
    ForgottenDirectories,
    /// After a restart an attempt that is over is cleared away though its instance serves another
    /// one.
    SharedInstanceCleared,
    /// What an action led to is told once, though the journal may refuse it.
    OutcomeToldOnce,
    /// A release now and then is not told to the core: its capacity stays held.
    CapacityKept,
    /// A release is told before the agents are gone.
    EarlyRelease,
    /// A release does not wait for its agents to exit.
    ImpatientRelease,
    /// A release does not end the agents that have not exited.
    LeftRunning,
    /// An attempt's release is reported before its instance is clear.
    EarlyRetained,
    /// An agent of a warm instance is served before all of them have connected.
    HastyInstance,
    /// A warm instance that does not connect for its attempt is not ended.
    LateInstance,
    /// What is left of a warm instance that is given up stays.
    WarmInstanceLeft,
    /// A checkpoint's receipt is committed before it is an object.
    EarlyReceipt,
    /// An agent is informed that its checkpoint is saved before the receipt is durable.
    EarlySaved,
    /// A snapshot stands for one event more than it holds. The fold after the next start may report
    /// it as well.
    SnapshotAhead,
    /// Only the row of a turn's last job is written.
    StaleRows,
    /// An append that was refused is taken back nowhere.
    RefusalForgotten,
    /// After a restart a study begins anew.
    StudyForgotten,
    /// Records of studies are now and then not in the transaction of their facts.
    RecordsLost,
    /// What attempts use is not measured, and nothing is ended when the machine lacks memory.
    UseNotMeasured,
    /// How far a trial may run is told to connected agents only, and does not stand.
    LostResume,
    /// The report numbers of an instance that is removed are kept for the next one.
    OldNumbersKept,
    /// The capacity of an instance is free before its process is gone.
    EarlyCleared,
    /// Where some instances of an attempt are added, all that do not run are started.
    AllStarted,
    /// The core takes each node to have the memory of all.
    NodeMemoryIgnored,
    /// Agents are started on the first node, wherever they were placed.
    NodeIgnored,
    /// A warm instance serves attempts that were placed on another node.
    WarmElsewhere,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 34] = [
        Bug::SkippedAppend,
        Bug::EarlyAnswer,
        Bug::EarlyAcknowledgement,
        Bug::RepeatedReport,
        Bug::DoubleLaunch,
        Bug::LostStop,
        Bug::ForgottenActions,
        Bug::ForgottenAttempts,
        Bug::ForgottenDirectories,
        Bug::SharedInstanceCleared,
        Bug::OutcomeToldOnce,
        Bug::CapacityKept,
        Bug::EarlyRelease,
        Bug::ImpatientRelease,
        Bug::LeftRunning,
        Bug::EarlyRetained,
        Bug::HastyInstance,
        Bug::LateInstance,
        Bug::WarmInstanceLeft,
        Bug::EarlyReceipt,
        Bug::EarlySaved,
        Bug::SnapshotAhead,
        Bug::StaleRows,
        Bug::RefusalForgotten,
        Bug::StudyForgotten,
        Bug::RecordsLost,
        Bug::UseNotMeasured,
        Bug::LostResume,
        Bug::OldNumbersKept,
        Bug::EarlyCleared,
        Bug::AllStarted,
        Bug::NodeMemoryIgnored,
        Bug::NodeIgnored,
        Bug::WarmElsewhere,
    ];
}
