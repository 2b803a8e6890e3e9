//! What NVIDIA's driver reports of GPUs, by its management library (NVML), which is part of the
//! driver. Without the library there are no figures of GPUs.
#![allow(unsafe_code, reason = "a C library that is loaded at run time")]

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::reading::GpuReading;

/// As the driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// `NVML_SUCCESS`
const SUCCESS: c_int = 0;

type Device = *mut c_void;

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The library, initialised, with the GPUs of an instance.
pub(super) struct Nvml {
    /// Number on the machine, and the library's handle.
    devices: Vec<(u32, Device)>,
    utilization: unsafe extern "C" fn(Device, *mut Utilization) -> c_int,
    memory: unsafe extern "C" fn(Device, *mut Memory) -> c_int,
    /// The functions above are in it.
    _library: Library,
}

impl Nvml {
    /// Loads the library for these GPUs, by the numbers of their device nodes; `None` if there are
    /// none or the machine's driver has no library.
    pub(super) fn load(gpus: &[u32]) -> Option<Self> {
        if gpus.is_empty() { None } else { Self::load_from(LIBRARY, gpus) }
    }

    fn load_from(name: &str, gpus: &[u32]) -> Option<Self> {
        // SAFETY: the types are those of nvml.h, whose versioned symbols never change theirs, and
        // the function pointers are dropped with the library. Its initialisers start no thread.
        unsafe {
            let library = Library::new(name).ok()?;
            let init = *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
            let count = *library.get::<unsafe extern "C" fn(*mut c_uint) -> c_int>(b"nvmlDeviceGetCount_v2\0").ok()?;
            let by_index = *library
                .get::<unsafe extern "C" fn(c_uint, *mut Device) -> c_int>(b"nvmlDeviceGetHandleByIndex_v2\0")
                .ok()?;
            let minor = *library
                .get::<unsafe extern "C" fn(Device, *mut c_uint) -> c_int>(b"nvmlDeviceGetMinorNumber\0")
                .ok()?;
            let utilization = *library.get(b"nvmlDeviceGetUtilizationRates\0").ok()?;
            let memory = *library.get(b"nvmlDeviceGetMemoryInfo\0").ok()?;
            let mut number = 0;
            if init() != SUCCESS || count(&raw mut number) != SUCCESS {
                return None;
            }
            let handle = |index| {
                let (mut device, mut node) = (std::ptr::null_mut(), 0);
                let is_found = by_index(index, &raw mut device) == SUCCESS && minor(device, &raw mut node) == SUCCESS;
                is_found.then_some((node, device)).filter(|(node, _)| gpus.contains(node))
            };
            let mut devices: Vec<(u32, Device)> = (0..number).filter_map(handle).collect();
            devices.sort_by_key(|(node, _)| *node);
            Some(Self { devices, utilization, memory, _library: library })
        }
    }

    /// What each GPU does; one that does not answer is left out.
    pub(super) fn read(&self) -> Vec<GpuReading> {
        let read = |(index, device): &(u32, Device)| {
            let (mut utilization, mut memory) = (Utilization::default(), Memory::default());
            // SAFETY: the handle is the library's own, and both structures are as nvml.h has them.
            let is_read = unsafe {
                (self.utilization)(*device, &raw mut utilization) == SUCCESS
                    && (self.memory)(*device, &raw mut memory) == SUCCESS
            };
            is_read.then(|| GpuReading {
                index: *index,
                utilization: f64::from(utilization.gpu),
                memory: 100.0 * memory.used as f64 / memory.total.max(1) as f64,
            })
        };
        self.devices.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A library with two GPUs, whose device nodes are numbered the other way round.
    const FAKE: &str = r"
        int nvmlInit_v2(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(unsigned long)(i + 1); return 0; }
        int nvmlDeviceGetMinorNumber(void *d, unsigned *n) { *n = 2 - (unsigned long)d; return 0; }
        int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { u[0] = 40 + (unsigned long)d; u[1] = 7; return 0; }
        int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 200; m[1] = 150; m[2] = 50; return 0; }
    ";

    #[test]
    fn gpus_are_found_by_their_device_nodes() {
        let temp = tempfile::tempdir().unwrap();
        let (source, library) = (temp.path().join("fake.c"), temp.path().join("fake.so"));
        std::fs::write(&source, FAKE).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
        assert!(built.success());
        let gpu = |index, utilization| GpuReading { index, utilization, memory: 25.0 };
        let read = |gpus: &[u32]| Nvml::load_from(library.to_str().unwrap(), gpus).unwrap().read();
        assert_eq!(read(&[0, 1]), [gpu(0, 42.0), gpu(1, 41.0)]);
        assert_eq!(read(&[1, 5]), [gpu(1, 41.0)]);
        assert!(Nvml::load_from("/nowhere/libnvidia-ml.so.1", &[0]).is_none(), "a machine without the driver");
        assert!(Nvml::load(&[]).is_none());
    }
}
