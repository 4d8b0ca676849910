//! The handlers of panics and hard faults. With the feature `report`, they print where the fault
//! happened and end QEMU; otherwise they reset the board.

use core::panic::PanicInfo;

use cortex_m_rt::{ExceptionFrame, exception};

#[panic_handler]
#[cfg_attr(not(feature = "report"), allow(unused_variables))]
fn panic(info: &PanicInfo<'_>) -> ! {
    cortex_m::interrupt::disable();
    #[cfg(feature = "report")]
    {
        crate::println!("{info}");
        #[cfg(not(feature = "reset-on-panic"))]
        crate::host::exit(101);
    }
    #[cfg(any(not(feature = "report"), feature = "reset-on-panic"))]
    crate::reset()
}

// SAFETY: the handler does not return, and uses no state that the fault may have left inconsistent.
#[exception]
#[cfg_attr(not(feature = "report"), allow(unused_variables))]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    #[cfg(feature = "report")]
    {
        crate::println!("hard fault at {:#010x}, called from {:#010x}", frame.pc(), frame.lr());
        crate::host::exit(102)
    }
    #[cfg(not(feature = "report"))]
    crate::reset()
}
