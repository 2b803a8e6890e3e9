//! FastFile mode where the server is on another machine: a read-only file system in user space that
//! has the channel's files at once, and fetches what is read of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request,
    SessionACL,
};
use shoal_link::ManifestEntry;

use crate::own_log::say;
use crate::parts::Parts;
use crate::source;

/// Nothing of it ever changes.
const FOREVER: Duration = Duration::from_secs(1 << 20);
/// Reads that wait for parts at the same time.
const THREADS: usize = 8;
/// KiB that the kernel asks for ahead of a reader in order: a part. FUSE itself agrees to 128.
const READ_AHEAD_KIB: u32 = 1 << 10;
const BLOCK: u32 = 4096;

/// A channel that is mounted, until this is dropped.
pub(crate) struct Mounted {
    // Unmounted first, so that no read comes any more.
    _session: BackgroundSession,
    parts: Arc<Parts>,
    at: PathBuf,
}

impl Mounted {
    /// Mounts files at a directory.
    ///
    /// # Errors
    /// The kernel has no FUSE or allows it not, or a path of the manifest leads out of the channel.
    pub(crate) fn new(entries: &[ManifestEntry], parts: &Arc<Parts>, at: &Path) -> io::Result<Self> {
        let files = Files::new(entries, parts.clone())?;
        std::fs::create_dir_all(at)?;
        let is_root = rustix::process::geteuid().is_root();
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::DefaultPermissions,
            MountOption::FSName("shoal".to_owned()),
        ];
        // The program's user is another one.
        config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(files, at, &config)?;
        if is_root && let Err(error) = read_ahead(at) {
            say(format_args!("the kernel reads 128 KiB ahead in {}: {error}", at.display()));
        }
        Ok(Self { _session: session, parts: parts.clone(), at: at.to_owned() })
    }

    /// Reads that wait are answered with an error.
    pub(crate) fn give_up(&self) {
        self.parts.give_up();
    }

    /// Where it is, if it is there.
    pub(crate) fn is_at(&self, place: &Path) -> Option<&Path> {
        (self.at == place).then_some(&*self.at)
    }

    /// Bytes that were fetched.
    pub(crate) fn fetched(&self) -> u64 {
        self.parts.fetched()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.parts.give_up();
        // Whatever still has a file open keeps it no longer than its own end.
        detach(&self.at);
    }
}

/// Unmounts what a process that has ended has mounted.
pub(crate) fn detach(at: &Path) {
    let _ = rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH);
}

/// Lets the kernel ask for whole parts.
fn read_ahead(at: &Path) -> io::Result<()> {
    let device = rustix::fs::stat(at)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KIB.to_string())
}

/// The files, by number: those of the manifest and the directories on the way to them.
struct Files {
    all: Vec<File>,
    parts: Arc<Parts>,
    since: SystemTime,
}

struct File {
    parent: usize,
    kind: Kind,
}

enum Kind {
    Directory(BTreeMap<String, usize>),
    File(ManifestEntry),
}

/// Numbers of FUSE's begin at 1, the root's.
fn number(index: usize) -> INodeNo {
    INodeNo(index as u64 + 1)
}

impl Files {
    fn new(entries: &[ManifestEntry], parts: Arc<Parts>) -> io::Result<Self> {
        let root = File { parent: 0, kind: Kind::Directory(BTreeMap::new()) };
        let mut files = Self { all: vec![root], parts, since: SystemTime::now() };
        for entry in entries {
            let relative = source::relative(Path::new(&entry.path)).filter(|path| !path.as_os_str().is_empty());
            let relative =
                relative.ok_or_else(|| io::Error::other(format!("\"{}\" leads out of the input", entry.path)))?;
            let names = Vec::from_iter(relative.iter().map(|name| name.to_string_lossy().into_owned()));
            files.add(&names, entry).ok_or_else(|| io::Error::other(format!("\"{}\" is there twice", entry.path)))?;
        }
        Ok(files)
    }

    fn add(&mut self, names: &[String], entry: &ManifestEntry) -> Option<()> {
        let (name, directories) = names.split_last()?;
        let mut at = 0;
        for directory in directories {
            at = match self.child(at, directory) {
                Some(child) => child,
                None => self.put(at, directory, Kind::Directory(BTreeMap::new()))?,
            };
        }
        match self.child(at, name) {
            Some(_) => None,
            None => self.put(at, name, Kind::File(entry.clone())).map(drop),
        }
    }

    fn child(&self, parent: usize, name: &str) -> Option<usize> {
        match &self.all.get(parent)?.kind {
            Kind::Directory(children) => children.get(name).copied(),
            Kind::File(_) => None,
        }
    }

    fn put(&mut self, parent: usize, name: &str, kind: Kind) -> Option<usize> {
        let index = self.all.len();
        match &mut self.all[parent].kind {
            Kind::Directory(children) => children.insert(name.to_owned(), index),
            Kind::File(_) => return None,
        };
        self.all.push(File { parent, kind });
        Some(index)
    }

    fn get(&self, inode: INodeNo) -> Option<(usize, &File)> {
        let index = usize::try_from(u64::from(inode)).ok()?.checked_sub(1)?;
        Some((index, self.all.get(index)?))
    }

    fn attributes(&self, index: usize) -> FileAttr {
        let (kind, perm, size) = match &self.all[index].kind {
            Kind::Directory(_) => (FileType::Directory, 0o555, 0),
            Kind::File(entry) => (FileType::RegularFile, 0o444, entry.size),
        };
        FileAttr {
            ino: number(index),
            size,
            blocks: size.div_ceil(512),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: BLOCK,
        }
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.get(parent).and_then(|(parent, _)| self.child(parent, name.to_str()?));
        match found {
            Some(index) => reply.entry(&FOREVER, &self.attributes(index), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.get(inode) {
            Some((index, _)) => reply.attr(&FOREVER, &self.attributes(index)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // What the kernel has of it from an earlier time is right.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some((_, File { kind: Kind::File(entry), .. })) = self.get(inode) else {
            return reply.error(Errno::EISDIR);
        };
        let mut reply = Some(reply);
        let read = self.parts.read_at(entry, offset, size.into(), |content| {
            reply.take().into_iter().for_each(|reply| reply.data(content));
        });
        if let (Err(_), Some(reply)) = (read, reply) {
            reply.error(Errno::EIO);
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some((index, File { parent, kind: Kind::Directory(children) })) = self.get(inode) else {
            return reply.error(Errno::ENOTDIR);
        };
        let here = [(".", index), ("..", *parent)].into_iter();
        let all = here.chain(children.iter().map(|(name, index)| (&**name, *index)));
        for (place, (name, index)) in (1..).zip(all).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(number(index), place, self.attributes(index).kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::objects::ObjectCache;
    use crate::parts::Origin;

    struct Letters;

    impl Origin for Letters {
        fn fetch(&self, id: &str, _: u64, length: u64) -> io::Result<Vec<u8>> {
            match id {
                "bad1" => Err(io::Error::other("refused")),
                _ => Ok(vec![id.as_bytes()[0]; usize::try_from(length).unwrap()]),
            }
        }

        fn give_up(&self) {}
    }

    fn entry(path: &str, id: &str, size: u64) -> ManifestEntry {
        ManifestEntry { path: path.to_owned(), id: id.to_owned(), size, text: None }
    }

    fn parts(dir: &Path) -> Arc<Parts> {
        Parts::new(Box::new(Letters), ObjectCache::new(dir.join("objects"), 1 << 30), Arc::default()).unwrap()
    }

    #[test]
    fn paths_become_a_tree_and_those_that_lead_out_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = |entries: &[ManifestEntry]| Files::new(entries, parts(dir.path()));
        let tree = files(&[entry("a", "aa01", 1), entry("sub/b", "bb01", 2), entry("sub/c", "cc01", 3)]).unwrap();
        let sub = tree.child(0, "sub").unwrap();
        let attributes = tree.attributes(tree.child(sub, "c").unwrap());
        assert_eq!((attributes.size, attributes.perm, attributes.kind), (3, 0o444, FileType::RegularFile));
        assert_eq!((tree.child(0, "b"), tree.child(tree.child(0, "a").unwrap(), "b")), (None, None));
        for path in ["../up", "/etc/passwd", "", "a/../../b"] {
            assert!(files(&[entry(path, "aa01", 1)]).is_err(), "{path}");
        }
        assert!(files(&[entry("a", "aa01", 1), entry("a/b", "bb01", 1)]).is_err());
        assert!(files(&[entry("a", "aa01", 1), entry("a", "bb01", 1)]).is_err());
    }

    /// Where the machine allows FUSE; elsewhere the error is for the job's log.
    #[test]
    fn a_mount_has_the_files_and_reads_them_when_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (at, parts) = (dir.path().join("at"), parts(dir.path()));
        let entries = [entry("a", "aa01", 3 << 20), entry("sub/b", "bb01", 2), entry("sub/bad", "bad1", 2)];
        let mounted = match Mounted::new(&entries, &parts, &at) {
            Ok(mounted) => mounted,
            Err(error) => {
                assert!(!Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root(), "{error}");
                return;
            }
        };
        let names = |path: &Path| {
            let entries = fs::read_dir(path).unwrap();
            let mut names = Vec::from_iter(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
            names.sort();
            names
        };
        assert_eq!(
            (names(&at), names(&at.join("sub"))),
            (vec!["a".into(), "sub".into()], vec!["b".into(), "bad".into()])
        );
        assert_eq!(fs::metadata(at.join("a")).unwrap().len(), 3 << 20);
        assert_eq!(mounted.fetched(), 0);
        assert_eq!(fs::read(at.join("sub/b")).unwrap(), b"bb");
        assert_eq!(mounted.fetched(), 2);
        assert!(fs::read(at.join("a")).unwrap() == vec![b'a'; 3 << 20]);
        assert_eq!(fs::read(at.join("sub/bad")).unwrap_err().raw_os_error(), Some(5));
        assert!(fs::write(at.join("new"), "").is_err() && fs::read(at.join("none")).is_err());
        drop(mounted);
        assert!(names(&at).is_empty());
    }
}
