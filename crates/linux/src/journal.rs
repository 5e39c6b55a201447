//! The journal of flows with custody: a small file that outlives the process, so that the next one
//! can reset the connections whose bytes died with it, and only those.
//!
//! The file is mapped into memory; keeping a record is a plain store, no system call. It stands in
//! /run, which is memory: a killed process loses nothing, a machine that restarts has no
//! connections to reset.
//!
//! A store into a mapping for which the file system has no room ends a process (SIGBUS). So room is
//! taken beforehand, by a thread that may wait, and a record for which there is none is refused. A
//! file that somebody cuts has its pages taken away from under us: the signal is caught, ordinary
//! memory takes their place, and another file is begun.
//!
//! Others may be able to write where it stands. So what is read is a plain file of this user or of
//! root, within the size that a journal has, and no link is followed. What is written is a new
//! file, which takes the place of whatever has the name.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use farlink_gateway::{IfaceId, RECORD_BYTES, Record};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Context, Error, Result};

const MAGIC: &[u8; 8] = b"FLJRNL01";
/// Room for the interfaces' names, so that a restart under another configuration still knows which
/// was which.
const NAME_BYTES: usize = 16;
const NAMES_MAX: usize = 127;
const HEADER_BYTES: usize = 2048;
const PAGE_BYTES: usize = 4096;
/// Flows that a journal has room for at most.
pub const SLOTS_MAX: usize = 1 << 20;
/// So long is the longest journal.
const FILE_BYTES_MAX: u64 = (HEADER_BYTES + SLOTS_MAX * RECORD_BYTES).next_multiple_of(PAGE_BYTES) as u64;

/// The mapped file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    map: NonNull<u8>,
    len: usize,
    slots: usize,
    room: Arc<Room>,
    /// Where [`guarded`] knows the mapping.
    guard: Option<usize>,
    /// Faults that were known when this one began.
    faults: u64,
    /// The largest slot that was used.
    used: usize,
    /// Records that had no slot; their connections would hang after a crash instead of being reset.
    refused: u64,
}

/// How far the file has room, shared with who takes it.
#[derive(Debug)]
struct Room {
    file: File,
    /// Slots for which there is room.
    slots: AtomicUsize,
    /// It is being taken.
    is_ordered: AtomicBool,
}

/// Slots for which room is taken at first. It doubles when half of it is used.
const SLOTS_AT_FIRST: usize = 4096;

// SAFETY: the mapping belongs to this value alone and is touched through `&mut self` only.
unsafe impl Send for Journal {}

impl Journal {
    /// What a predecessor left, with its interfaces translated into ours by name
    /// ([`IfaceId::OTHER`] for those that are gone). Empty when there is no journal, or none that
    /// can be read: then nothing can be reset, and hosts find out for themselves.
    #[must_use]
    pub fn replay(path: &Path, interfaces: &[(IfaceId, String)]) -> Vec<Record> {
        let file = match open_left(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Vec::new(),
            Err(error) => {
                tracing::warn!(
                    journal = %path.display(),
                    %error,
                    "nothing is read of what stands in the place of the journal: what the last run held, if it was killed, is not reset"
                );
                return Vec::new();
            }
        };
        let mut header = [0u8; HEADER_BYTES];
        if file.read_exact_at(&mut header, 0).is_err() || !header.starts_with(MAGIC) {
            return Vec::new();
        }
        let names: Vec<String> = header[16..]
            .chunks_exact(NAME_BYTES)
            .map(|n| String::from_utf8_lossy(n).trim_end_matches('\0').to_owned())
            .collect();
        let translate = |id: IfaceId| {
            let name = names.get(usize::from(id.0)).filter(|n| !n.is_empty());
            let now = name.and_then(|name| interfaces.iter().find(|(_, n)| n == name));
            now.map_or(IfaceId::OTHER, |(id, _)| *id)
        };
        let mut records = Vec::new();
        let mut chunk = vec![0u8; PAGE_BYTES];
        let mut at = HEADER_BYTES as u64;
        loop {
            let n = file.read_at(&mut chunk, at).unwrap_or(0);
            for slot in chunk[..n].chunks_exact(RECORD_BYTES) {
                let Some(record) = slot.first_chunk().and_then(Record::decode) else { continue };
                records.push(Record {
                    iface_a: translate(record.iface_a),
                    iface_b: translate(record.iface_b),
                    ..record
                });
            }
            let whole = n / RECORD_BYTES * RECORD_BYTES;
            if whole == 0 {
                return records;
            }
            at += whole as u64;
        }
    }

    /// Starts an empty journal for up to `slots` flows, in place of whatever stood there. Only
    /// touched pages cost memory.
    pub fn create(path: &Path, slots: usize, interfaces: &[(IfaceId, String)]) -> Result<Self> {
        let new = new_name(path);
        let made = Self::create_as(&new, path, slots.min(SLOTS_MAX), interfaces);
        if made.is_err() {
            // An old one would be read by the next run, as if it told of this one.
            let _ = std::fs::remove_file(&new);
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// The same under a name of its own, which is changed when it is complete.
    fn create_as(new: &Path, path: &Path, slots: usize, interfaces: &[(IfaceId, String)]) -> Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).context(|| format!("creating {}", directory.display()))?;
        }
        let len = (HEADER_BYTES + slots * RECORD_BYTES).next_multiple_of(PAGE_BYTES);
        // A run that was killed may have left one.
        let _ = std::fs::remove_file(new);
        // A new file: no link is followed, and nobody else has it open.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(new)
            .context(|| format!("creating the journal {}", new.display()))?;
        file.set_len(len as u64).context(|| format!("sizing the journal {}", path.display()))?;
        // SAFETY: a fresh mapping of a file that only this process writes; its length is that of
        // the file.
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }
        .context(|| format!("mapping the journal {}", path.display()))?;
        let Some(map) = NonNull::new(map.cast::<u8>()) else {
            return Err(Error::Refused("the journal was mapped nowhere".to_owned()));
        };
        let room = Room { file, slots: AtomicUsize::new(0), is_ordered: AtomicBool::new(false) };
        let guard = guarded::add(map.as_ptr() as usize, len);
        let faults = guarded::faults();
        let mut journal = Self {
            path: path.to_owned(),
            map,
            len,
            slots,
            room: Arc::new(room),
            guard,
            faults,
            used: 0,
            refused: 0,
        };
        // Without room for its header there can be no journal; without more, no records yet.
        take_room(&journal.room.file, HEADER_BYTES)
            .context(|| format!("taking room for the journal {}", path.display()))?;
        let _ = journal.grow(SLOTS_AT_FIRST);
        interfaces.iter().for_each(|(id, name)| journal.call(*id, name));
        journal.bytes()[..MAGIC.len()].copy_from_slice(MAGIC);
        std::fs::rename(new, path).context(|| format!("naming the journal {}", path.display()))?;
        Ok(journal)
    }

    /// The interface of this number has this name from here on.
    pub fn call(&mut self, id: IfaceId, name: &str) {
        if usize::from(id.0) >= NAMES_MAX - 1 {
            return;
        }
        let mut field = [0; NAME_BYTES];
        let len = name.len().min(NAME_BYTES);
        field[..len].copy_from_slice(&name.as_bytes()[..len]);
        self.bytes()[16 + usize::from(id.0) * NAME_BYTES..][..NAME_BYTES].copy_from_slice(&field);
    }

    /// Takes room for so many slots now. Takes its time.
    fn grow(&self, slots: usize) -> std::io::Result<()> {
        grow(&self.room, slots.min(self.slots))
    }

    /// What is to be done, by somebody who may wait, so that there is room: half of it is used.
    /// `used`: a slot in use.
    fn wants_room(&self, used: usize) -> bool {
        let slots = self.room.slots.load(Ordering::Acquire);
        slots < self.slots && used >= slots / 2
    }

    /// Room is to be taken for records up to the ones that are used. Returned: the work, for
    /// somebody who may wait.
    pub fn order_room(&self) -> Option<impl FnOnce() -> std::io::Result<()> + Send + 'static> {
        let slots = self.room.slots.load(Ordering::Acquire);
        if !self.wants_room(self.used) || self.room.is_ordered.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (room, most) = (Arc::clone(&self.room), self.slots);
        let wanted = (self.used + 1).max(slots).max(SLOTS_AT_FIRST / 2).saturating_mul(2);
        Some(move || {
            let done = grow(&room, wanted.min(most));
            room.is_ordered.store(false, Ordering::Relaxed);
            done
        })
    }

    /// The file was cut, or its memory is gone: what stands in it is not all that was put there.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        guarded::faults() != self.faults
    }

    /// There is room for a record under this slot.
    #[must_use]
    pub fn has_room(&self, slot: u32) -> bool {
        (slot as usize) < self.room.slots.load(Ordering::Acquire)
    }

    /// Keeps a record under a slot, or empties the slot.
    pub fn put(&mut self, slot: u32, record: Option<&Record>) {
        let is_kept = self.has_room(slot);
        let slot = slot as usize;
        self.used = self.used.max(slot.min(self.slots));
        if !is_kept {
            self.refused += u64::from(record.is_some());
            return;
        }
        let encoded = record.map_or([0; RECORD_BYTES], Record::encode);
        self.bytes()[HEADER_BYTES + slot * RECORD_BYTES..][..RECORD_BYTES].copy_from_slice(&encoded);
        // The store must be made before whatever acknowledgement follows it. A torn record fails
        // its checksum.
        compiler_fence(Ordering::Release);
    }

    /// Records that had no slot.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Ends an orderly life: no custody is left, nothing is to be replayed.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes long, lives as long as `self`, and is borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_ptr(), self.len) }
    }
}

/// What a journal is called until it is complete.
fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// What a predecessor left; `None`: nothing.
///
/// # Errors
/// Something stands there that no predecessor has left.
fn open_left(path: &Path) -> Result<Option<File>> {
    let refused = |why: String| Err(Error::Refused(format!("{} {why}", path.display())));
    // A FIFO without a writer is opened at once, and refused below.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return refused("is a symbolic link".to_owned());
        }
        Err(error) => return Err(Error::os(format!("opening {}", path.display()), error)),
    };
    let is = file.metadata().context(|| format!("looking at {}", path.display()))?;
    let own = rustix::process::geteuid().as_raw();
    if !is.is_file() {
        return refused("is no plain file".to_owned());
    }
    if ![own, 0].contains(&is.uid()) {
        return refused(format!("belongs to user {}, not to {own} or root", is.uid()));
    }
    if is.len() > FILE_BYTES_MAX {
        return refused(format!("has {} bytes, and a journal has {FILE_BYTES_MAX} at most", is.len()));
    }
    Ok(Some(file))
}

fn grow(room: &Room, slots: usize) -> std::io::Result<()> {
    take_room(&room.file, HEADER_BYTES + slots * RECORD_BYTES)?;
    room.slots.fetch_max(slots, Ordering::Release);
    Ok(())
}

/// The file system keeps room for so many bytes.
fn take_room(file: &File, bytes: usize) -> std::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    let bytes = bytes.next_multiple_of(PAGE_BYTES) as u64;
    Ok(rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes))?)
}

/// Mappings whose pages may be taken away from under us.
mod guarded {
    use std::sync::Once;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use portable_atomic::AtomicU64;

    use super::PAGE_BYTES;

    const MAX: usize = 64;
    /// First and last byte, by place; zero: free.
    static MAPS: [(AtomicUsize, AtomicUsize); MAX] =
        [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MAX];
    static FAULTS: AtomicU64 = AtomicU64::new(0);
    static INSTALLED: Once = Once::new();

    /// Pages that were taken away so far.
    pub(super) fn faults() -> u64 {
        FAULTS.load(Ordering::Relaxed)
    }

    /// `None`: there are too many, and this one is not guarded.
    pub(super) fn add(start: usize, len: usize) -> Option<usize> {
        INSTALLED.call_once(install);
        let is_free = |(from, _): &(AtomicUsize, AtomicUsize)| {
            from.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = MAPS.iter().position(is_free)?;
        MAPS.get(place)?.1.store(start + len, Ordering::Release);
        Some(place)
    }

    pub(super) fn remove(place: usize) {
        if let Some((from, to)) = MAPS.get(place) {
            to.store(0, Ordering::Release);
            from.store(0, Ordering::Release);
        }
    }

    fn install() {
        // SAFETY: the handler makes one system call and touches atomics, no more.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    }

    extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel hands a valid siginfo over. The page that is replaced belongs to a
        // mapping of ours, whose owner only ever stores plain bytes there.
        unsafe {
            let at = (*info).si_addr() as usize;
            let is_in = |(from, to): &(AtomicUsize, AtomicUsize)| {
                (from.load(Ordering::Acquire)..to.load(Ordering::Acquire)).contains(&at)
            };
            if MAPS.iter().any(is_in) {
                let page = (at & !(PAGE_BYTES - 1)) as *mut libc::c_void;
                let (rights, kind) = (
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                );
                if libc::mmap(page, PAGE_BYTES, rights, kind, -1, 0) == page {
                    FAULTS.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(place) = self.guard {
            guarded::remove(place);
        }
        // SAFETY: the mapping is ours and no slice of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::SeqNum;

    fn record(n: u16) -> Record {
        Record {
            iface_a: IfaceId(0),
            iface_b: IfaceId(1),
            a: ("10.0.0.1".parse().unwrap(), n),
            b: ("10.0.0.2".parse().unwrap(), 80),
            acked_by_a: SeqNum(1),
            acked_by_b: SeqNum(2),
            reach_bytes: 1 << 20,
        }
    }

    #[test]
    fn records_outlive_their_writer_and_follow_names() {
        let directory = std::env::temp_dir().join(format!("flt-journal-{}", std::process::id()));
        let path = directory.join("journal");
        let named = |names: [&str; 2]| -> Vec<(IfaceId, String)> {
            (0u16..).map(IfaceId).zip(names.map(str::to_owned)).collect()
        };
        assert_eq!(Journal::replay(&path, &named(["lan", "sat"])), []);
        let mut journal = Journal::create(&path, 1000, &named(["lan", "sat"])).unwrap();
        for (slot, n) in [(0, 1), (7, 2), (999, 3)] {
            journal.put(slot, Some(&record(n)));
        }
        journal.put(7, None);
        journal.put(1000, Some(&record(4)));
        assert_eq!(journal.refused(), 1);
        drop(journal);
        let left = Journal::replay(&path, &named(["lan", "sat"]));
        assert_eq!(left, [record(1), record(3)]);
        let turned = Journal::replay(&path, &named(["sat", "lan"]));
        assert_eq!((turned[0].iface_a, turned[0].iface_b), (IfaceId(1), IfaceId(0)));
        let gone = Journal::replay(&path, &named(["lan", "other"]));
        assert_eq!((gone[0].iface_a, gone[0].iface_b), (IfaceId(0), IfaceId::OTHER));
        let journal = Journal::create(&path, 1000, &named(["lan", "sat"])).unwrap();
        assert_eq!(Journal::replay(&path, &named(["lan", "sat"])), [], "a new one is empty");
        journal.remove();
        assert!(!path.exists());
        std::fs::write(&path, b"FLJRNL01 but torn").unwrap();
        assert_eq!(Journal::replay(&path, &named(["lan", "sat"])), []);
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// Somebody who may write there puts other things in the place of the journal.
    #[test]
    fn what_others_put_there_is_neither_read_nor_written() {
        let directory = std::env::temp_dir().join(format!("flt-journal-others-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, other) = (directory.join("journal"), directory.join("other"));
        let mut journal = Journal::create(&other, 100, &[]).unwrap();
        journal.put(3, Some(&record(1)));
        drop(journal);
        let held = std::fs::read(&other).unwrap();
        assert_eq!(Journal::replay(&other, &[]).len(), 1);
        let new = new_name(&path);
        for link in [&path, &new] {
            std::os::unix::fs::symlink(&other, link).unwrap();
        }
        assert_eq!(Journal::replay(&path, &[]), [], "a link is not followed");
        drop(Journal::create(&path, 100, &[]).unwrap());
        assert_eq!(std::fs::read(&other).unwrap(), held, "what it leads to is as before");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file() && !new.exists());
        // A FIFO that nobody writes to, and a directory, hold nobody up.
        std::fs::remove_file(&path).unwrap();
        let fifo = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(Journal::replay(&path, &[]), []);
        drop(Journal::create(&path, 100, &[]).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(Journal::replay(&path, &[]), []);
        assert!(Journal::create(&path, 100, &[]).is_err());
        // One that is far too long costs no time.
        let sparse = File::options().write(true).open(&other).unwrap();
        sparse.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(Journal::replay(&other, &[]), []);
        sparse.set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(Journal::replay(&other, &[]).len(), 1);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&other, Some(65534), None).unwrap();
            assert_eq!(Journal::replay(&other, &[]), [], "a stranger's");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// There is no old one in place of one that could not be made: it would tell of another run.
    #[test]
    fn an_old_one_goes_where_none_can_be_made() {
        let directory = std::env::temp_dir().join(format!("flt-journal-old-{}", std::process::id()));
        let path = directory.join("journal");
        let mut journal = Journal::create(&path, 100, &[]).unwrap();
        journal.put(3, Some(&record(1)));
        drop(journal);
        std::fs::create_dir(new_name(&path)).unwrap();
        assert!(Journal::create(&path, 100, &[]).is_err());
        assert!(!path.exists());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_is_cut_ends_nothing_and_room_is_taken_ahead() {
        let directory = std::env::temp_dir().join(format!("flt-journal-cut-{}", std::process::id()));
        let path = directory.join("journal");
        let mut journal = Journal::create(&path, 100_000, &[]).unwrap();
        assert!(journal.has_room(4095) && !journal.has_room(4096) && journal.order_room().is_none());
        journal.put(5000, Some(&record(1)));
        assert_eq!(journal.refused(), 1);
        let work = journal.order_room().unwrap();
        assert!(journal.order_room().is_none(), "it is ordered once");
        work().unwrap();
        assert!(journal.has_room(10_001) && !journal.has_room(10_002));
        journal.put(5000, Some(&record(1)));
        assert!(!journal.is_damaged());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        journal.put(7, Some(&record(2)));
        journal.put(5000, None);
        assert!(journal.is_damaged());
        let mut again = Journal::create(&path, 100_000, &[]).unwrap();
        again.put(7, Some(&record(2)));
        assert!(!again.is_damaged());
        drop(journal);
        drop(again);
        assert_eq!(Journal::replay(&path, &[]).len(), 1);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
