//! Measures the cost of each part of a mote on a Cortex-M3. The test runs the programs of
//! `firmware/footprint` in QEMU, compares the numbers with `docs/footprint.md`,
//! `docs/footprint.csv` and `docs/footprint_levels.csv`, and checks them against their bars (upper
//! limits).
//!
//! `MOTESEAL_BLESS=1 cargo test -p moteseal-bench --test it footprint` writes these files. The
//! compiler is pinned, dependencies are locked, and QEMU counts instructions deterministically, so
//! every number must be equal. The results of each program are also compared with the results of
//! the host.

mod columns;
mod dtls;
mod figures;
mod inputs;
mod page;
mod program;

use std::path::Path;

use dtls::Recorded;
use figures::{Figures, Part};
use inputs::Inputs;
use program::{Firmware, Program, flash_of};

/// The bars of a mote with all parts and Ed25519, in bytes of flash and of stack.
const ALL_FLASH: u64 = 64 * 1024;
const ALL_STACK: u64 = 8 * 1024;

/// The bar of the encryption of an event of 4 bytes, in instructions.
const ENCRYPTED_EVENT: u64 = 150;

/// The bar of updates of the firmware, in bytes of flash.
const UPDATE_FLASH: u64 = 6 * 1024;

/// Returns the largest stack that any of these operations needs, in bytes.
fn deepest(run: &Program, work: &[&str]) -> u64 {
    work.iter().map(|work| run.get(&format!("{work}.stack"))).max().unwrap()
}

/// Adds the numbers of a star with `levels` levels. If there is a bar for RAM, the bars for flash
/// and for an event also apply. They are the same for all such stars.
fn star(
    figures: &mut Figures,
    run: &Program,
    inputs: &Inputs,
    name: &str,
    levels: u8,
    ram: Option<u64>,
) {
    run.expect("root", &inputs.star_root(levels));
    let mut part = Part::new(name);
    part.row("RAM", "bytes", run.get("state.bytes"), ram);
    part.row("flash", "bytes", run.flash, ram.map(|_| 12 * 1024));
    part.row("stack", "bytes", deepest(run, &["push", "close"]), None);
    part.row(
        "an event of 4 bytes",
        "instructions",
        run.get("push").div_ceil(run.get("events")),
        ram.map(|_| 1000),
    );
    part.row("closing an epoch", "instructions", run.get("close"), None);
    figures.add(part);
}

fn tree(
    figures: &mut Figures,
    run: &Program,
    inputs: &Inputs,
    name: &str,
    events: usize,
    ram: Option<u64>,
) {
    run.expect("root", &inputs.tree_root(events));
    let mut part = Part::new(name);
    part.row("RAM", "bytes", run.get("state.bytes"), ram);
    part.row("flash", "bytes", run.flash, None);
    part.row("stack", "bytes", deepest(run, &["push", "close"]), None);
    part.row(
        "an event of 4 bytes",
        "instructions",
        run.get("push").div_ceil(run.get("events")),
        None,
    );
    part.row("closing an epoch", "instructions", run.get("close"), None);
    figures.add(part);
}

fn signature(figures: &mut Figures, run: &Program, name: &str, work: &str) {
    let mut part = Part::new(name);
    part.row("RAM", "bytes", run.get("state.bytes"), None);
    part.row("flash", "bytes", run.flash, None);
    part.row("stack", "bytes", deepest(run, &["key", work]), None);
    part.row("preparing the key", "instructions", run.get("key"), None);
    part.row(
        if work == "sign" { "signing 300 bytes" } else { "verifying 300 bytes" },
        "instructions",
        run.get(work),
        None,
    );
    figures.add(part);
}

/// Adds the numbers of the encryption of columns.
fn encryption(figures: &mut Figures, run: &Program, inputs: &Inputs) {
    columns::check(run, inputs.events());
    let mut part = Part::new("encryption of columns");
    part.row("RAM, the keys of a column", "bytes", run.get("path.bytes"), None);
    part.row(
        "RAM, the key stream of a column of the open seal",
        "bytes",
        run.get("stream.bytes"),
        None,
    );
    part.row("RAM, the open seal, for all its columns", "bytes", run.get("seal.bytes"), None);
    part.row("flash", "bytes", run.flash, None);
    let work = ["one", "two", "aes", "root", "advance", "keys"];
    part.row("stack", "bytes", deepest(run, &work), None);
    for (what, work, bar) in [
        ("an event of 4 bytes, one column, ChaCha20", "one", Some(ENCRYPTED_EVENT)),
        ("an event of 4 bytes, two columns, ChaCha20", "two", None),
        ("an event of 4 bytes, one column, AES-128-CTR", "aes", None),
    ] {
        part.row(what, "instructions", run.get(work).div_ceil(run.get("events")), bar);
    }
    let advance = run.get("advance").div_ceil(run.get("epochs"));
    part.row(
        "the next epoch of a column, from its stored nodes, mean",
        "instructions",
        advance,
        None,
    );
    part.row("the same, from the root of the column", "instructions", run.get("root"), None);
    part.row("the key of a seal and its commitment", "instructions", run.get("keys"), None);
    figures.add(part);
}

fn chain(figures: &mut Figures, run: &Program, name: &str) {
    let mut part = Part::new(name);
    part.row("RAM, blocks of 10 messages", "bytes", run.get("state.bytes"), Some(1024));
    part.row("RAM, blocks of 1 message", "bytes", run.get("state.1.bytes"), Some(1024));
    part.row("RAM, blocks of 16 messages", "bytes", run.get("state.16.bytes"), None);
    part.row("flash", "bytes", run.flash, None);
    part.row(
        "stack",
        "bytes",
        deepest(run, &["head.1", "head.10", "messages.1", "messages.10"]),
        None,
    );
    part.row("a head, blocks of 10 messages", "instructions", run.get("head.10"), None);
    let count = run.get("count");
    part.row(
        "a message of 48 bytes, blocks of 1",
        "instructions",
        run.get("messages.1").div_ceil(count),
        None,
    );
    part.row(
        "a message of 48 bytes, blocks of 10",
        "instructions",
        run.get("messages.10").div_ceil(count),
        None,
    );
    figures.add(part);
}

/// Adds the numbers of a client of DTLS: a handshake with a shared key, which is counted, and one with
/// signatures, which is estimated from the operations on P-256.
fn dtls(figures: &mut Figures, psk: &Program, agree: &Program, sign: &Program, verify: &Program) {
    let mut part = Part::new("client of DTLS 1.2, PSK_AES128_CCM_8, without retransmission");
    part.row("RAM", "bytes", psk.get("state.bytes"), None);
    part.row("flash", "bytes", psk.flash, None);
    part.row("stack", "bytes", deepest(psk, &["handshake", "seal"]), None);
    part.row("a handshake", "instructions", psk.get("handshake"), None);
    part.row("a record of 46 bytes sent", "instructions", psk.get("seal"), None);
    part.row("a record of 46 bytes received", "instructions", psk.get("open"), None);
    figures.add(part);

    let mut part = Part::new("P-256, key agreement");
    part.row("flash", "bytes", agree.flash, None);
    part.row("stack", "bytes", deepest(agree, &["key", "agree"]), None);
    part.row("an ephemeral key", "instructions", agree.get("key"), None);
    part.row("the shared secret", "instructions", agree.get("agree"), None);
    figures.add(part);

    let mut part = Part::new("handshake of DTLS 1.2 at a client, ECDHE_ECDSA on P-256, estimated");
    let exchange = psk.get("handshake") + agree.get("key") + agree.get("agree");
    let verification = verify.get("key") + verify.get("verify");
    let signature = sign.get("sign");
    for (what, instructions) in [
        ("raw public keys of both sides", exchange + verification + signature),
        ("the server's certificate", exchange + 2 * verification),
        ("certificates of both sides", exchange + 2 * verification + signature),
    ] {
        part.row(what, "instructions", instructions, None);
    }
    figures.add(part);
}

#[test]
fn the_board_works_on_both_emulated_machines() {
    for (board, counts) in [("lm3s6965evb", false), ("mps2-an385", true)] {
        let mut expected = vec![
            "the mark survived a reset",
            "bits only clear: true",
            "out of range: true",
            "provision: 16384 bytes, first 00",
            "stack: true",
            "clock: true",
        ];
        // Each iteration of the loop takes four instructions.
        expected.extend(counts.then_some("1,000 turns more take 4000 instructions"));
        assert_eq!(program::smoke(board).lines().collect::<Vec<_>>(), expected, "{board}");
    }
}

#[test]
fn the_footprint_is_up_to_date_and_within_its_bars() {
    let inputs = Inputs::new();
    let mut figures = Figures::default();
    let firmware = Firmware::build(&["ed25519"], true, &[]);
    let run = |name: &str, input: &[u8]| firmware.run(name, input);

    for (levels, ram) in [(8, Some(1228)), (16, Some(2048)), (32, None)] {
        star(
            &mut figures,
            &run(&format!("star{levels}"), &inputs.star()),
            &inputs,
            &format!("star, L = {levels}"),
            levels,
            ram,
        );
    }
    tree(
        &mut figures,
        &run("tree10", &inputs.tree(1023)),
        &inputs,
        "tree, capacity 2^10",
        1023,
        None,
    );
    tree(
        &mut figures,
        &run("tree20", &inputs.tree(1023)),
        &inputs,
        "tree, capacity 2^20",
        1023,
        Some(1536),
    );

    let grouped = run("star16_groups", &inputs.grouped_star());
    grouped.expect("root", &inputs.grouped_root());
    let mut part = Part::new("star, L = 16, two column groups");
    part.row("RAM", "bytes", grouped.get("state.bytes"), None);
    part.row("flash", "bytes", grouped.flash, None);
    part.row("stack", "bytes", deepest(&grouped, &["push", "close"]), None);
    part.row(
        "an event of 4 bytes",
        "instructions",
        grouped.get("push").div_ceil(grouped.get("events")),
        Some(1000),
    );
    part.row("closing an epoch", "instructions", grouped.get("close"), None);
    figures.add(part);

    let seal = run("seal", &inputs.seal());
    let mut part = Part::new("star, L = 16, with its statement and upload item, signed elsewhere");
    part.row("flash", "bytes", seal.flash, None);
    part.row("stack", "bytes", seal.get("seal.stack"), None);
    part.row("an epoch's end", "instructions", seal.get("seal"), None);
    figures.add(part);

    encryption(&mut figures, &run("columns", &columns::input(inputs.events())), &inputs);

    let sign = run("ed25519_sign", &inputs.sign());
    sign.expect("signature", &inputs.ed25519_signature());
    signature(&mut figures, &sign, "Ed25519, signing", "sign");
    let verify = run("ed25519_verify", &inputs.ed25519_verify());
    signature(&mut figures, &verify, "Ed25519, verifying", "verify");

    let sies = run("sies", &inputs.sies());
    sies.expect("psr", &inputs.psr());
    let mut part = Part::new("source of private sums");
    part.row("RAM", "bytes", sies.get("state.bytes"), None);
    part.row("flash", "bytes", sies.flash, None);
    part.row("stack", "bytes", deepest(&sies, &["query", "reading"]), None);
    part.row("the keys of a query, once per query", "instructions", sies.get("query"), None);
    part.row("a reading: guard and encryption", "instructions", sies.get("reading"), Some(30_000));
    figures.add(part);

    chain(
        &mut figures,
        &run("chain_reopened", &inputs.chains()),
        "receiver of a chain, head verified elsewhere",
    );
    let with_key = run("chain", &inputs.chains());
    chain(&mut figures, &with_key, "receiver of a chain, head verified with Ed25519");
    let mut part = Part::new("receiver of a chain: memory in addition to its RAM");
    part.row(
        "the sender with its prepared key, while its chains are received",
        "bytes",
        with_key.get("sender.bytes"),
        None,
    );
    part.row("preparing the sender's key", "instructions", with_key.get("sender"), None);
    part.row(
        "buffer while a head is opened, otherwise free",
        "bytes",
        with_key.get("head.bytes"),
        None,
    );
    figures.add(part);

    let sender = run("chain_sender", &inputs.chain_sender());
    inputs.check_chain_sender(&sender);
    let mut part = Part::new("sender of a chain, Ed25519");
    part.row("flash", "bytes", sender.flash, None);
    part.row("stack", "bytes", sender.get("head.stack"), None);
    part.row("20 messages of 48 bytes, in blocks of 10", "instructions", sender.get("head"), None);
    figures.add(part);

    let hmac = run("hmac", &inputs.hmac());
    inputs.check_hmac(&hmac);
    let mut part = Part::new("HMAC-SHA-256 with a shared key");
    part.row("RAM", "bytes", hmac.get("state.bytes"), None);
    part.row("flash", "bytes", hmac.flash, None);
    part.row("stack", "bytes", hmac.get("code.stack"), None);
    part.row("the code of a message of 48 bytes", "instructions", hmac.get("code"), None);
    figures.add(part);

    let device = run("device", &inputs.device());
    device.expect("item", &inputs.sealed_item());
    let mut part = Part::new("all in one: star L = 16, Ed25519, source, receiver of a chain");
    part.row(
        "RAM, with the sender's key, a chain of seals and a buffer for a head",
        "bytes",
        device.get("state.bytes"),
        None,
    );
    part.row("flash", "bytes", device.flash, Some(ALL_FLASH));
    let work = ["push", "seal", "reading", "head", "messages"];
    part.row("stack", "bytes", deepest(&device, &work), Some(ALL_STACK));
    part.row("an epoch's end, signed", "instructions", device.get("seal"), None);
    figures.add(part);

    let (boot, without) = (flash_of("boot", "mps2-an385"), flash_of("mote", "mps2-an385"));
    let with = flash_of("mote", "mps2-an385,slots");
    // The compiler orders functions by hashes of the checkout's path, which changes the flash of a
    // whole firmware by a few bytes. These sizes are rounded up so that they hold in every folder.
    let mut part = Part::new("updates of the firmware");
    part.row("flash of the boot stage", "bytes", boot, None);
    part.row("flash of the mote's firmware without slots", "KiB", without.div_ceil(1024), None);
    part.row("flash of the mote's firmware with slots", "KiB", with.div_ceil(1024), None);
    let together = (boot + with - without).next_multiple_of(64);
    part.row(
        "flash of the boot stage and of the slots, at most",
        "bytes",
        together,
        Some(UPDATE_FLASH),
    );
    figures.add(part);

    let hashes = run("hashes", &inputs.text());
    inputs.check_hashes(&hashes);
    let (rsa, dsa) = (run("rsa", &inputs.rsa()), run("dsa", &inputs.dsa()));
    inputs.check_rsa(&rsa);
    inputs.check_dsa(&dsa);
    let paper = run("paper_star", &inputs.tree(1024));
    let levels = run("levels", &[]);

    let recorded = Recorded::new();
    let psk = run("dtls_psk", &recorded.input());
    recorded.check(&psk);

    let p256 = Firmware::build(&["esp256"], true, &["p256_agree", "p256_sign", "p256_verify"]);
    let p256_sign = p256.run("p256_sign", &inputs.sign());
    p256_sign.expect("signature", &inputs.p256_signature());
    signature(&mut figures, &p256_sign, "P-256, signing", "sign");
    let p256_verify = p256.run("p256_verify", &inputs.p256_verify());
    signature(&mut figures, &p256_verify, "P-256, verifying", "verify");
    let p256_agree = p256.run("p256_agree", &inputs.p256_agree());
    inputs.check_p256_agree(&p256_agree);
    dtls(&mut figures, &psk, &p256_agree, &p256_sign, &p256_verify);

    let tables =
        Firmware::build(&["ed25519", "ed25519-tables"], true, &["ed25519_sign", "ed25519_verify"]);
    let fast_sign = tables.run("ed25519_sign", &inputs.sign());
    fast_sign.expect("signature", &inputs.ed25519_signature());
    signature(&mut figures, &fast_sign, "Ed25519 with tables, signing", "sign");
    signature(
        &mut figures,
        &tables.run("ed25519_verify", &inputs.ed25519_verify()),
        "Ed25519 with tables, verifying",
        "verify",
    );

    let unrolled = Firmware::build(&["ed25519"], false, &["hashes", "star16", "tree20"]);
    let fast_hashes = unrolled.run("hashes", &inputs.text());
    inputs.check_hashes(&fast_hashes);
    star(
        &mut figures,
        &unrolled.run("star16", &inputs.star()),
        &inputs,
        "star, L = 16, SHA-2 unrolled",
        16,
        None,
    );
    tree(
        &mut figures,
        &unrolled.run("tree20", &inputs.tree(1023)),
        &inputs,
        "tree, capacity 2^20, SHA-2 unrolled",
        1023,
        None,
    );

    let mut part = Part::new("other stars of 16 levels, for comparison");
    let events = paper.get("events");
    part.row(
        "the paper's step (two hashes), per event",
        "instructions",
        paper.get("paper").div_ceil(events),
        None,
    );
    part.row("one compression, per event", "instructions", paper.get("one").div_ceil(events), None);
    figures.add(part);

    let mut part = Part::new(
        "primitives of the paper's table I: digests of 10 bytes, signatures of 300, RSA and DSA without their digests",
    );
    for (what, run, name) in
        [("MD5", &hashes, "md5"), ("SHA-1", &hashes, "sha1"), ("SHA-256", &hashes, "sha256")]
    {
        part.row(what, "instructions", run.get(name), None);
    }
    part.row("SHA-256, unrolled", "instructions", fast_hashes.get("sha256"), None);
    part.row("a compression of SHA-256", "instructions", hashes.get("compress"), None);
    part.row(
        "a compression of SHA-256, unrolled",
        "instructions",
        fast_hashes.get("compress"),
        None,
    );
    let signing = [
        ("RSA-1024 signing", &rsa),
        ("DSA-512 signing", &dsa),
        ("Ed25519 signing", &sign),
        ("P-256 signing", &p256_sign),
    ];
    for (what, run) in signing {
        part.row(what, "instructions", run.get("sign"), None);
    }
    figures.add(part);

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let texts = [
        ("footprint.md", page::markdown(&figures)),
        ("footprint.csv", page::csv(&figures)),
        ("footprint_levels.csv", page::levels(|level| levels.get(&format!("{level}.bytes")))),
    ];
    let bless = std::env::var_os("MOTESEAL_BLESS").is_some();
    for (name, text) in &texts {
        if bless {
            std::fs::write(docs.join(name), text).unwrap();
        }
    }
    let missed = figures.missed();
    assert!(missed.is_empty(), "above the bar:\n{}", missed.join("\n"));
    for (name, text) in &texts {
        let committed = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
        let differs = text
            .lines()
            .zip(committed.lines().chain(std::iter::repeat("")))
            .find(|(new, old)| new != old);
        assert!(
            committed == *text,
            "docs/{name} is out of date; MOTESEAL_BLESS=1 writes it. \
             The first different line, measured and committed: {differs:?}"
        );
    }
}
