//! A training over several hosts: the roll first, then the group of those with data, and a clear
//! word on who was lost.

use super::channels::Rows;
use super::data::{Format, Source};
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::collective::Communicator;
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::instance::Instance;
use super::roll::{Caller, Meeting, Member, Report};
use super::termination::{Termination, end_process};
use super::train::{self, Channels};
use super::{log, report};

/// This host's part of the job.
pub(super) fn train(
    api: &'static Api,
    instance: &Instance,
    hyperparameters: &Hyperparameters,
    format: Format,
    termination: &Termination,
) -> Result<(), Failure> {
    let job = &instance.job;
    log::info(&format!("Distributed node training with {} hosts: {:?}", job.world_size(), job.hosts));
    let first = job.hosts[0].as_str();
    let meeting = Meeting {
        job: instance.job_name.clone(),
        hosts: job.hosts.clone(),
        port: instance.port,
        silence: instance.silence,
    };
    let caller = if job.current_host() == first { Some(call(api, instance, &meeting)?) } else { None };
    let failure_file = instance.paths.failure();
    let requests = termination.requests();
    let end = move |loss| {
        if let Some(code) = requests.explain(&loss) {
            end_process(code);
        }
        report(&Failure::Lost(loss), &failure_file);
        end_process(shoal_contract::FAILURE);
    };
    let resolve = || instance.address(first);
    let member = Member::join(job.current_host(), &meeting, resolve, end)?;

    let result = match take_part(api, instance, hyperparameters, format, &member, termination) {
        Ok(()) => {
            member.done();
            Ok(())
        }
        Err(Failure::Lost(loss)) => Err(loss.into()),
        // XGBoost notices first that a host is gone, but not which.
        Err(Failure::Group(text)) => match member.loss() {
            Some(loss) => Err(loss.into()),
            None => {
                member.fail(&text);
                Err(Failure::Group(text))
            }
        },
        Err(failure) => {
            member.fail(&failure.to_string());
            Err(failure)
        }
    };
    match caller {
        Some(caller) if result.is_ok() => caller.finish(),
        Some(caller) => caller.see_off(),
        None => {}
    }
    result
}

fn call(api: &'static Api, instance: &Instance, meeting: &Meeting) -> Result<Caller, Failure> {
    let host = instance.job.current_host();
    let unresolved = || std::io::Error::other("the host's own name does not resolve");
    let address = instance.address(host).ok_or_else(unresolved);
    address
        .and_then(|address| Caller::start(api, address, meeting))
        .map_err(|source| Failure::Listen { address: format!("{host}:{}", meeting.port), source })
}

fn take_part(
    api: &'static Api,
    instance: &Instance,
    hyperparameters: &Hyperparameters,
    format: Format,
    member: &Member,
    termination: &Termination,
) -> Result<(), Failure> {
    let host = instance.job.current_host();
    let rows = Rows::read(instance, hyperparameters, format)?;
    let missing = rows.missing();
    let own_columns =
        rows.train.as_ref().map_or(0, Source::columns).max(rows.validation.as_ref().map_or(0, Source::columns));
    let dense = matches!(format, Format::Csv(_));
    let plan = member.report(Report { has_data: missing.is_none(), columns: own_columns, dense })?;
    if plan.hosts.is_empty() {
        return Err(Failure::User("No hosts received training data.".to_owned()));
    }
    if let Some(channel) = missing {
        log::warning(&format!(
            "Host {host} does not have {channel} data. This host {host} will not be used in distributed training. \
             Please divide the \
             {channel} data across instances properly."
        ));
        return Ok(());
    }
    let (train, validation) = rows.complete()?;
    let channels = Channels { train, validation, columns: plan.columns };
    if plan.hosts.len() == 1 {
        log::info("Only 1 host with training data, starting single node training.");
        return train::train(api, instance, hyperparameters, channels, &Group::alone(), termination);
    }
    let first = instance.job.hosts[0].as_str();
    let address = instance
        .address(first)
        .ok_or_else(|| Failure::XGBoost(format!("the name of {first} does not resolve any more")))?;
    let place = plan.hosts.iter().position(|name| name == host).expect("a host with data is in the plan");
    let group = Group::of(Communicator::join(api, address, plan.tracker_port, place)?);
    let trained = train::train(api, instance, hyperparameters, channels, &group, termination);
    if trained.is_ok() {
        // Everything is written by now.
        if let Err(error) = group.leave() {
            log::warning(&format!("leaving the group of hosts: {error}"));
        }
    }
    trained
}
