//! Tests every part of the board, prints the results and ends QEMU with status 0. If the
//! provisioning blob begins with `e`, the program also echoes a line of text from the serial line.

#![no_std]
#![no_main]

use moteseal_board::{Board, clock::Clock, entry, flash, host, println, reset, stack};

#[entry]
fn main() -> ! {
    let Some(mut board) = Board::take() else { host::exit(1) };
    board.uart.start();
    board.clock.start();
    if board.flash.bytes()[..4] != *b"boot" {
        // At the first start, write a mark and reset. The mark must survive the reset.
        let written = board.flash.erase(0).and_then(|()| board.flash.program(0, *b"boot"));
        if written.is_err() || board.flash.bytes()[4..8] != [0xff; 4] {
            host::exit(2);
        }
        reset();
    }
    println!("the mark survived a reset");
    if board.flash.program(4, *b"\x0f\x0f\x0f\x0f").is_err()
        || board.flash.program(4, *b"\xf0\xff\xff\xff").is_err()
    {
        host::exit(3);
    }
    println!("bits only clear: {}", board.flash.bytes()[4..8] == *b"\x00\x0f\x0f\x0f");
    println!(
        "out of range: {}",
        board.flash.program(flash::LENGTH, [0; 4]).is_err()
            && board.flash.erase(flash::LENGTH / flash::SECTOR).is_err()
    );
    let provision = board.provision.split_front(usize::MAX);
    println!("provision: {} bytes, first {:02x}", provision.len(), provision[0]);
    for &byte in b"hello, line\n" {
        while !board.uart.write(byte) {}
    }
    if provision[0] == b'e' {
        while let Some(byte) = wait(&mut board) {
            while !board.uart.write(byte) {}
            if byte == b'\n' {
                break;
            }
        }
    }
    let (peak, sum) = stack::peak_of(|| depth(10));
    println!("stack: {}", (400..4000).contains(&peak) && sum == 10 * 100);
    let until = board.clock.now_ms() + 5;
    while board.clock.now_ms() < until {}
    println!("clock: {}", until >= 5 && now(&board.clock) < until + 1000);
    #[cfg(feature = "mps2-an385")]
    {
        // Each turn takes exactly two instructions, because the clock's interrupt is off.
        let count = |board: &mut Board, turns: u32| board.instructions.of(|| turn(turns)).0;
        cortex_m::interrupt::disable();
        println!(
            "1,000 turns more take {} instructions",
            count(&mut board, 3000) - count(&mut board, 2000)
        );
    }
    host::exit(0)
}

fn now(clock: &Clock) -> u64 {
    clock.now_ms()
}

fn wait(board: &mut Board) -> Option<u8> {
    let until = board.clock.now_ms() + 10_000;
    while board.clock.now_ms() < until {
        if let Some(byte) = board.uart.read() {
            return Some(byte);
        }
    }
    None
}

#[inline(never)]
fn depth(calls: u32) -> u32 {
    let frame = core::hint::black_box([calls; 10]);
    if calls == 0 { 0 } else { 100 + depth(calls - 1) + frame[0] - calls }
}

#[cfg(feature = "mps2-an385")]
#[inline(never)]
fn turn(turns: u32) {
    cortex_m::asm::delay(turns * 2);
}
