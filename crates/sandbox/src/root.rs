//! The minimal root of an instance: an allow-list of the machine's files on a file system of its
//! own, and what the caller mounts on top.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::addresses::private_address;
use crate::mounts::{Access, Piece, make_read_only};
use crate::talk::Mode;
use crate::users::{HOME, PROGRAM_ID, UNPRIVILEGED_ID, USER};
use crate::{Mount, SandboxError, SandboxSpec, Support};

mod image;

/// The new root is put together here, on top of a directory that every machine has; all that is
/// needed of the machine has been taken in hand before.
const STAGE: &str = "/usr";

/// Directories of the machine's root that are shown: links as the links that they are
/// (`/bin -> usr/bin`), directories read-only.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Entries of `/etc` that programs and libraries read, none of them secret.
const ETC: [&str; 22] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "services",
    "ssl",
    "terminfo",
    "timezone",
    "xml",
];

/// And all entries of `/etc` that begin so: the loader's, and settings of language environments.
const ETC_PREFIXES: [&str; 8] = ["ld.so.c", "python", "java", "perl", "R", "openmpi", "OpenCL", "ImageMagick"];

/// The writable places that are the instance's own.
pub(crate) const OWN_PLACES: [&str; 5] = ["/tmp", "/var/tmp", "/run", HOME, "/dev/shm"];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Whose the writable parts are, as the process that builds sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Builder<'a> {
    /// The program's user and group.
    pub owner: u32,
    /// When the program is not who owns the caller's files: the user namespace whose root it is, to
    /// show them as its own.
    pub show_as: Option<BorrowedFd<'a>>,
}

/// What is not as it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Shortfalls {
    /// In sentences.
    pub notes: Vec<String>,
    /// An overlay cannot be written to.
    pub read_only: bool,
}

/// Makes the instance's root and changes into it. The caller is root in a mount namespace of its
/// own and in the instance's PID and network namespaces.
pub(crate) fn enter(spec: &SandboxSpec, builder: Builder<'_>) -> Result<Shortfalls, SandboxError> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(SandboxError::io("part from the machine's mounts"))?;
    let (roots, others): (Vec<_>, Vec<_>) = spec.mounts.iter().partition(|wanted| wanted.is_root());
    let image = roots.last().map(|wanted| Taken::take(wanted, builder)).transpose()?;
    let system = System::take(image.is_some())?;
    let mounts = others.into_iter().map(|wanted| Taken::take(wanted, builder)).collect::<Result<Vec<_>, _>>()?;

    let mut shortfalls = Shortfalls::default();
    let secure = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let is_image = image.is_some();
    match image {
        None => file_system("tmpfs", "", secure, "mode=0755")?,
        Some(image) => image.put(builder, &mut shortfalls)?,
    }
    for name in ["/etc", "/dev", "/proc", "/sys", "/tmp", "/var", "/run", "/opt", "/home"] {
        make_target(Path::new(name), true, 0)?;
    }
    if is_image {
        file_system("tmpfs", "dev", MsFlags::MS_NOSUID, "mode=0755")?;
    }
    system.put()?;
    let wrote = if is_image { image::write_identity(spec) } else { write_identity(spec) };
    wrote.map_err(SandboxError::io("write the instance's /etc"))?;
    make_writable_places(builder.owner)?;
    shortfalls.notes.extend(kernel_file_systems()?);
    for taken in mounts {
        taken.put(builder, &mut shortfalls)?;
    }

    std::env::set_current_dir(STAGE).map_err(SandboxError::io("enter the new root"))?;
    nix::unistd::pivot_root(".", ".").map_err(SandboxError::io("change the root"))?;
    // The old root lies on top of the new one now.
    umount2(".", MntFlags::MNT_DETACH).map_err(SandboxError::io("leave the old root"))?;
    std::env::set_current_dir("/").map_err(SandboxError::io("enter the new root"))?;
    if !is_image {
        make_read_only(Path::new("/")).map_err(SandboxError::io("make / read-only"))?;
    }
    Ok(shortfalls)
}

/// A path of the instance while its root is still staged.
fn staged(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(STAGE).join(path.strip_prefix("/").unwrap_or(path))
}

/// The other way round, for messages.
fn inside(path: &Path) -> PathBuf {
    Path::new("/").join(path.strip_prefix(STAGE).unwrap_or(path))
}

/// Something of the machine's own that every instance sees at the same place.
enum Shown {
    Link(PathBuf),
    Piece(Piece, bool),
}

struct System(Vec<(PathBuf, Shown)>);

impl System {
    /// An image has all but the devices itself.
    fn take(is_image: bool) -> Result<System, SandboxError> {
        let mut shown = Vec::new();
        let system = SYSTEM.iter().map(|name| Path::new("/").join(name));
        let files = if is_image { Vec::new() } else { system.chain(etc_entries()).collect() };
        let devices = DEVICES.iter().map(|name| Path::new("/dev").join(name));
        for path in files.into_iter().chain(devices) {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let failed = SandboxError::io(format!("show {} in the instance", path.display()));
            let kind = metadata.file_type();
            let entry = if kind.is_symlink() {
                fs::read_link(&path).map(Shown::Link)
            } else {
                let access = if kind.is_char_device() { Access::Device } else { Access::ReadOnly };
                Piece::take(&path, access).map(|piece| Shown::Piece(piece, kind.is_dir()))
            };
            shown.push((path, entry.map_err(failed)?));
        }
        Ok(System(shown))
    }

    fn put(self) -> Result<(), SandboxError> {
        for (path, shown) in self.0 {
            let target = staged(&path);
            let done = match shown {
                Shown::Link(to) => symlink(to, &target),
                Shown::Piece(piece, true) => make_directory(&target).and_then(|()| piece.put(&target)),
                Shown::Piece(piece, false) => File::create(&target).and_then(|_| piece.put(&target)),
            };
            done.map_err(SandboxError::io(format!("show {} in the instance", path.display())))?;
        }
        Ok(())
    }
}

fn etc_entries() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    let allowed = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        ETC.contains(&&*name) || ETC_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    });
    allowed.map(|entry| entry.path()).collect()
}

/// What the instance believes of itself. There is no resolv.conf: there is no way out.
fn write_identity(spec: &SandboxSpec) -> io::Result<()> {
    let passwd = format!(
        "root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{PROGRAM_ID}:{PROGRAM_ID}::{HOME}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\ntty:x:5:\n{USER}:x:{PROGRAM_ID}:\nnogroup:x:65534:\n");
    let switch = "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n";
    for (name, text) in [
        ("hosts", &*hosts(spec)),
        ("passwd", &*passwd),
        ("group", &*group),
        ("nsswitch.conf", switch),
        ("hostname", &format!("{}\n", spec.hostname)),
    ] {
        write_file(&staged("etc").join(name), text)?;
    }
    symlink("/proc/mounts", staged("etc/mtab"))
}

fn hosts(spec: &SandboxSpec) -> String {
    let mut hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n".to_owned();
    for (index, name) in spec.hosts.iter().enumerate() {
        let address = spec.addresses.get(index).copied().unwrap_or_else(|| private_address(index as u32 + 1));
        hosts.push_str(&format!("{address} {name}\n"));
    }
    hosts
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Private, empty, gone with the instance.
fn make_writable_places(owner: u32) -> Result<(), SandboxError> {
    let secure = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    for path in OWN_PLACES.into_iter().filter(|path| !path.starts_with("/dev")) {
        make_target(Path::new(path), true, 0)?;
        let options =
            if path.ends_with("tmp") { "mode=1777".to_owned() } else { format!("mode=0755,uid={owner},gid={owner}") };
        file_system("tmpfs", path, secure, &options)?;
    }
    match symlink("/run", staged("var/run")) {
        // An image has its own.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(SandboxError::io("make /var/run")),
    }
}

/// `/proc`, `/sys` and the rest of `/dev`.
fn kernel_file_systems() -> Result<Vec<String>, SandboxError> {
    let secure = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let links =
        [("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")];
    for (name, to) in links {
        symlink(to, staged("dev").join(name)).map_err(SandboxError::io(format!("make /dev/{name}")))?;
    }
    for path in ["dev/pts", "dev/shm"] {
        make_directory(&staged(path)).map_err(SandboxError::io(format!("make /{path}")))?;
    }
    file_system("devpts", "dev/pts", secure, "newinstance,ptmxmode=0666,mode=0620")?;
    file_system("tmpfs", "dev/shm", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=1777")?;
    file_system("proc", "proc", secure | MsFlags::MS_NODEV, "")?;
    // Some settings belong to whoever made a namespace, and that can be the program's own user
    // outside.
    for name in ["proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus", "proc/fs"].map(staged) {
        match Piece::take(&name, Access::ReadOnly) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            taken => {
                let failed = SandboxError::io(format!("make {} read-only", inside(&name).display()));
                taken.and_then(|piece| piece.put(&name)).map_err(failed)?;
            }
        }
    }
    let sysfs = file_system("sysfs", "sys", secure | MsFlags::MS_NODEV | MsFlags::MS_RDONLY, "").or_else(|refused| {
        // Only the owner of a network may mount its own: the machine's is shown instead.
        let shown = Piece::take(Path::new("/sys"), Access::ReadOnly).and_then(|piece| piece.put(&staged("sys")));
        shown.map_err(|_| refused)
    });
    Ok(sysfs.err().map(|error| format!("the instance has no /sys: {}", error.chain())).into_iter().collect())
}

fn file_system(kind: &str, target: &str, flags: MsFlags, options: &str) -> Result<(), SandboxError> {
    let path = staged(target);
    let failed = SandboxError::io(format!("mount a {kind} at {}", inside(&path).display()));
    mount(Some(kind), &path, Some(kind), flags, Some(options)).map_err(failed)
}

/// One of the caller's mounts, taken in hand.
struct Taken<'a> {
    wanted: &'a Mount,
    piece: Piece,
    directory: bool,
    /// Of an overlay: the upper and the work directory.
    layer: Option<[File; 2]>,
    notes: Vec<String>,
}

impl<'a> Taken<'a> {
    fn take(wanted: &'a Mount, builder: Builder<'_>) -> Result<Taken<'a>, SandboxError> {
        let failed = |what: &str| SandboxError::io(format!("{what} {}", wanted.source().display()));
        let shared = wanted.open_shared().map_err(failed("open the directory below"))?;
        let by_number = shared.as_ref().map(|fd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())));
        let source = by_number.as_deref().unwrap_or_else(|| wanted.source());
        let metadata = fs::metadata(source).map_err(failed("find mount source"))?;
        let mut notes = Vec::new();
        let access = match wanted {
            Mount::Bind { .. } if metadata.file_type().is_char_device() => Access::Device,
            Mount::Bind { .. } => Access::Writable,
            Mount::Shared { is_writable: true, .. } => Access::Writable,
            Mount::ReadOnly { .. } | Mount::Overlay { .. } | Mount::Shared { .. } => Access::ReadOnly,
        };
        if access == Access::Writable && shared.is_none() {
            give_to(source, builder.owner).map_err(failed("give the program's user"))?;
        }
        let piece = Piece::take(source, access).map_err(failed("take"))?;
        if let (Access::ReadOnly, Some(user_namespace), None) = (access, builder.show_as, &shared)
            && piece.show_as(user_namespace).is_err()
        {
            notes.push(format!(
                "{}: its file system cannot show files as another user's, so the program sees only what everybody may \
                 read",
                source.display()
            ));
        }
        let layer = match wanted {
            Mount::Overlay { scratch, .. } => Some(
                make_layer(scratch, builder.owner)
                    .map_err(SandboxError::io(format!("make a layer in {}", scratch.display())))?,
            ),
            Mount::Bind { .. } | Mount::ReadOnly { .. } | Mount::Shared { .. } => None,
        };
        Ok(Taken { wanted, piece, directory: metadata.is_dir(), layer, notes })
    }

    fn put(self, builder: Builder<'_>, shortfalls: &mut Shortfalls) -> Result<(), SandboxError> {
        shortfalls.notes.extend(self.notes);
        let target = self.wanted.target();
        if !self.wanted.is_root() {
            make_target(target, self.directory, builder.owner)?;
        }
        let path = staged(target);
        self.piece.put(&path).map_err(SandboxError::io(format!("mount at {}", target.display())))?;
        if let Some(layer) = &self.layer
            && let Err(error) = put_layer(&path, layer, builder)
        {
            shortfalls.notes.push(format!("{} is read-only, as no overlay can be had: {error}", target.display()));
            shortfalls.read_only = true;
        }
        Ok(())
    }
}

/// Empties nothing: a layer that was used before goes on.
fn make_layer(scratch: &Path, owner: u32) -> io::Result<[File; 2]> {
    let open = |name: &str| {
        let path = scratch.join(name);
        make_directory(&path)?;
        lchown(&path, Some(owner), Some(owner))?;
        File::open(&path)
    };
    Ok([open("upper")?, open("work")?])
}

/// Over the read-only piece that lies at `path` already. Descriptors instead of paths, because
/// commas and colons mean something in options.
fn put_layer(path: &Path, [upper, work]: &[File; 2], builder: Builder<'_>) -> io::Result<()> {
    let lower = File::open(path)?;
    let by_number = |file: &File| format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let mut options =
        format!("lowerdir={},upperdir={},workdir={}", by_number(&lower), by_number(upper), by_number(work));
    if builder.show_as.is_none() {
        // Only the machine's root may write trusted.* attributes.
        options.push_str(",userxattr");
    }
    mount(Some("overlay"), path, Some("overlay"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(&*options))?;
    // The kernel has made a directory in it that nobody may read, which would puzzle whoever
    // removes the scratch directory.
    fs::set_permissions(format!("{}/work", by_number(work)), fs::Permissions::from_mode(0o700))
}

/// Makes a tree on the machine belong to the program's user, as [`Mount::Bind`] does with what it
/// shows: for what is put there later.
///
/// # Errors
/// The operating system refuses.
pub fn give(tree: &Path, support: &Support) -> io::Result<()> {
    match support.mode() {
        Mode::Root => give_to(tree, UNPRIVILEGED_ID),
        // It is theirs: the program's user is ours.
        Mode::Rootless | Mode::Processes | Mode::Container => Ok(()),
    }
}

/// Makes a tree belong to the program's user. Links are not followed, and a file with several names
/// is left alone: it may be somebody's stored object.
fn give_to(path: &Path, owner: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let shared = metadata.is_file() && metadata.nlink() > 1;
    if !shared && (metadata.uid(), metadata.gid()) != (owner, owner) {
        lchown(path, Some(owner), Some(owner))?;
        if !metadata.is_symlink() && metadata.mode() & 0o6000 != 0 {
            // As the kernel does for everybody but root: what ran as its owner must not run as the
            // new one.
            fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() & 0o1777))?;
        }
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

/// Makes an empty directory or file to mount on, and its parents, in the staged root. The way there
/// may lead through trees that a program has written, so nothing on it may be a link.
fn make_target(target: &Path, directory: bool, owner: u32) -> Result<(), SandboxError> {
    let failed = |source| SandboxError::Io { what: format!("make {} to mount on", target.display()), source };
    let mut path = PathBuf::from(STAGE);
    let mut parts = target.components().filter(|part| *part != Component::RootDir).peekable();
    if !target.is_absolute() || target.components().any(|part| part == Component::ParentDir) || parts.peek().is_none() {
        return Err(failed(io::Error::other("a mount's target is an absolute path without ..")));
    }
    while let Some(part) = parts.next() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {
                let link = inside(&path);
                return Err(failed(io::Error::other(format!(
                    "{} is a symbolic link; replace it by what it points to",
                    link.display()
                ))));
            }
            Ok(_) => {}
            Err(_) if parts.peek().is_none() && !directory => File::create(&path).map(drop).map_err(failed)?,
            Err(_) => make_directory(&path).and_then(|()| lchown(&path, Some(owner), Some(owner))).map_err(failed)?,
        }
    }
    Ok(())
}

/// Fine if it is there already.
fn make_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
