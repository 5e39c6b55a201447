//! The kernel's lock for interfaces (RTNL), held for as long as one likes: the kernel is to write
//! an answer into a page that is not there, while it has the lock, and userfaultfd(2) lets it wait.

use std::os::fd::{FromRawFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

const PAGE: usize = 4096;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const ETHTOOL_GLINK: u32 = 0x0a;
const SIOCETHTOOL: u64 = 0x8946;

/// It is held until this is dropped.
pub struct Held {
    fault: Option<OwnedFd>,
    asker: Option<JoinHandle<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fault = None;
        let _ = self.asker.take().unwrap().join();
    }
}

/// `None`: this kernel, or this user, has no userfaultfd.
pub fn hold() -> Option<Held> {
    // SAFETY: all memory that is named is mapped here and never unmapped; the second page is
    // written by the kernel alone.
    unsafe {
        let fault = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        let fault = i32::try_from(fault).ok().filter(|fd| *fd >= 0)?;
        let owned = OwnedFd::from_raw_fd(fault);
        let mut api = [UFFD_API, 0, 0];
        if libc::ioctl(fault, UFFDIO_API, &raw mut api) != 0 {
            return None;
        }
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let pages = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, kind, -1, 0).cast::<u8>();
        // The question stands at the end of the first page, and its answer in the second.
        let question = pages.add(PAGE - size_of::<u32>());
        question.cast::<u32>().write_unaligned(ETHTOOL_GLINK);
        let mut second = [pages.add(PAGE) as u64, PAGE as u64, MODE_MISSING, 0];
        if libc::ioctl(fault, UFFDIO_REGISTER, &raw mut second) != 0 {
            return None;
        }
        let question = question as usize;
        let asker = std::thread::spawn(move || {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
            request.ifr_ifru.ifru_data = question as *mut libc::c_char;
            libc::ioctl(socket, SIOCETHTOOL, &raw mut request);
            libc::close(socket);
        });
        std::thread::sleep(Duration::from_millis(100));
        Some(Held { fault: Some(owned), asker: Some(asker) })
    }
}
