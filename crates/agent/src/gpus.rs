//! The GPUs of an instance: NVIDIA's device nodes shown in it, and the variables by which CUDA
//! finds these and no others. The driver's libraries and tools are in `/usr`, which every instance
//! sees.

use std::path::Path;

use shoal_sandbox::{Mount, SandboxSpec};

/// What GPUs of one machine share; not every driver has all of them.
const SHARED: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];

/// Names the variable with the numbers of the GPUs that a scheduler gave this agent.
const FROM: &str = "SHOAL_GPUS_FROM";

/// The numbers of an instance's GPUs on this machine. A scheduler chooses them, so the assignment
/// counts them from 0.
pub(crate) fn numbers(assigned: &[u32], variable: &dyn Fn(&str) -> Option<String>) -> Vec<u32> {
    let Some(given) = variable(FROM).and_then(|name| variable(&name)) else { return assigned.to_vec() };
    let given: Option<Vec<u32>> = given.split(',').map(|number| number.trim().parse().ok()).collect();
    // MIG's names are no numbers of device nodes.
    let Some(given) = given else { return assigned.to_vec() };
    assigned.iter().filter_map(|index| given.get(*index as usize).copied()).collect()
}

/// What a program needs to use its GPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus {
    pub(crate) mounts: Vec<Mount>,
    pub(crate) variables: Vec<(String, String)>,
    /// GPUs that the instance has and that the machine lacks.
    pub(crate) note: Option<String>,
}

/// For the GPUs of these numbers, whose device nodes are in `dev`. An `isolated` program sees its
/// own nodes alone, and CUDA counts them from 0. Any other program gets the list of its GPUs'
/// numbers in a variable; the list is empty if it has none.
pub(crate) fn of(gpus: &[u32], dev: &Path, isolated: bool) -> Gpus {
    let (there, missing): (Vec<u32>, Vec<u32>) =
        gpus.iter().partition(|number| dev.join(format!("nvidia{number}")).exists());
    let own = there.iter().map(|number| format!("nvidia{number}"));
    let shared = SHARED.iter().filter(|_| !there.is_empty()).map(|name| (*name).to_owned());
    let nodes = own.chain(shared).map(|name| dev.join(name)).filter(|node| node.exists());
    let mounts = nodes.map(|node| Mount::Bind { source: node.clone(), target: node }).collect();
    let visible: Vec<String> = match isolated {
        true => (0..there.len()).map(|number| number.to_string()).collect(),
        false => there.iter().map(u32::to_string).collect(),
    };
    // Numbers of device nodes follow the bus; CUDA's own order would be by speed.
    let wanted = !gpus.is_empty() || !isolated;
    let variables = [("CUDA_VISIBLE_DEVICES", visible.join(",")), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned())];
    let missing: Vec<_> = missing.iter().map(|number| format!("{}/nvidia{number}", dev.display())).collect();
    let note = (!missing.is_empty()).then(|| {
        format!(
            "the instance has {} GPUs, but this machine has no {}: the program runs without; see the setting gpus",
            gpus.len(),
            missing.join(", ")
        )
    });
    Gpus {
        mounts,
        variables: variables.map(|(name, value)| (name.to_owned(), value)).into_iter().filter(|_| wanted).collect(),
        note,
    }
}

/// Lets the program see them; variables of its own stay.
pub(crate) fn show(gpus: Gpus, spec: &mut SandboxSpec) {
    spec.mounts.extend(gpus.mounts);
    let new = gpus.variables.into_iter().filter(|(name, _)| !spec.env.iter().any(|(own, _)| own == name));
    spec.env.extend(new.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_scheduler_chooses_gpus() {
        let of = |assigned: &[u32], given: Option<&str>| {
            let variable = |name: &str| match name {
                FROM => given.map(|_| "SLURM_STEP_GPUS".to_owned()),
                "SLURM_STEP_GPUS" => given.filter(|given| !given.is_empty()).map(str::to_owned),
                _ => None,
            };
            numbers(assigned, &variable)
        };
        assert_eq!(of(&[0], Some("3")), [3]);
        assert_eq!(of(&[0, 1], Some("2,5")), [2, 5]);
        assert_eq!(of(&[0, 1], Some("7")), [7], "fewer than its type has");
        for given in [None, Some(""), Some("MIG-1")] {
            assert_eq!(of(&[0, 1], given), [0, 1], "{given:?}");
        }
    }

    #[test]
    fn an_instance_sees_its_own_gpus_only() {
        let dev = tempfile::tempdir().unwrap();
        for node in ["nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(dev.path().join(node), "").unwrap();
        }
        let shown = |gpus: &[u32], isolated| {
            let Gpus { mounts, variables, note } = of(gpus, dev.path(), isolated);
            let names = mounts.iter().map(|mount| match mount {
                Mount::Bind { source, target } if source == target => {
                    source.file_name().unwrap().to_string_lossy().into_owned()
                }
                other => panic!("{other:?}"),
            });
            (
                names.collect::<Vec<_>>().join(" "),
                variables.first().map_or("-", |(_, value)| value).to_owned(),
                note.is_some(),
            )
        };
        let expected = |nodes: &str, visible: &str, noted| (nodes.to_owned(), visible.to_owned(), noted);
        assert_eq!(shown(&[1, 2], true), expected("nvidia1 nvidia2 nvidiactl nvidia-uvm", "0,1", false));
        assert_eq!(shown(&[1, 2], false), expected("nvidia1 nvidia2 nvidiactl nvidia-uvm", "1,2", false));
        assert_eq!(shown(&[2, 7], true), expected("nvidia2 nvidiactl nvidia-uvm", "0", true));
        assert_eq!(shown(&[], true), expected("", "-", false));
        assert_eq!(shown(&[], false), expected("", "", false));
        assert_eq!(shown(&[7], true), expected("", "", true));
    }
}
