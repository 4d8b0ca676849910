//! The roles of a policy: what each may do, found by trying, and how soon a revocation takes effect.

use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_store::EpochStore;
use moteseal_store::conformance::Mote;
use moteseal_table::{
    Access, Attempt, LOGIN, Options, Password, Rights, Role, TableStore, apply_roles, attempts,
    check_revocation, init, role_statements,
};

use crate::node::shared;

/// Returns the attempts that differ, and that were not made.
fn differing(attempts: &[Attempt]) -> Vec<&Attempt> {
    attempts.iter().filter(|attempt| attempt.found != Ok(attempt.expected)).collect()
}

#[test]
fn roles_can_do_their_work_and_nothing_else_and_end_within_five_seconds() {
    let cassandra = shared();
    let superuser = cassandra.address("governed");
    let role = |name: &str, rights| Role {
        name: format!("governed_{name}"),
        password: Password(format!("password-of-{name}")),
        rights,
    };
    let roles =
        [role("boss", Rights::Create), role("back-1", Rights::Write), role("front", Rights::Read)];
    let address =
        |role: &Role| cassandra.address_of(&role.name, &role.password.0, &superuser.keyspace);
    let apply = |roles: &[Role], revoked: &[String]| {
        apply_roles(&superuser, &role_statements("governed", 1, roles, revoked)).unwrap();
    };
    apply(&roles, &[]);
    apply(&roles, &[]);
    let [boss, back, front] = [0, 1, 2].map(|number: usize| address(&roles[number]));
    let done = init(&boss, 1).unwrap();
    assert!(!done.created && done.before.is_none(), "the keyspace exists, the tables do not");

    for (address, role) in [&boss, &back, &front].into_iter().zip(&roles) {
        let done = attempts(address, Some(role.rights)).unwrap();
        assert!(differing(&done).is_empty(), "{}: {:#?}", role.name, differing(&done));
    }
    let done = attempts(&front, Some(Rights::Write)).unwrap();
    let names: Vec<_> = differing(&done).iter().map(|attempt| attempt.action).collect();
    assert_eq!(names, ["write"], "{done:#?}");
    let done = attempts(&superuser, Some(Rights::Create)).unwrap();
    let names: Vec<_> = differing(&done).iter().map(|attempt| attempt.action).collect();
    assert_eq!(names, ["manage roles"], "{done:#?}");
    let mut nobody = front.clone();
    nobody.user = None;
    let done = attempts(&nobody, None).unwrap();
    assert!(differing(&done).is_empty() && done[0].action == LOGIN, "{done:#?}");
    check_revocation(&front).unwrap();

    // The work itself: the attempts have changed nothing.
    let mut mote = Mote::new("governed", false);
    let mut seal = || mote.seal_some(Scheme::Star, 1, 5).bundle;
    let options = || Options { put_time: Duration::from_millis(100), ..Options::default() };
    let worker = TableStore::open(&back, options()).unwrap();
    assert_eq!(worker.put(vec![seal()]).unwrap().stored, 1);
    let reads =
        TableStore::open(&front, Options { access: Access::Read, ..Options::default() }).unwrap();
    assert_eq!(reads.devices(None, 10).unwrap().len(), 1);

    // A role that has fewer rights, or is revoked, loses them on its open connections, too.
    let own = Options { access: Access::Read, read_time: Duration::from_millis(100), ..options() };
    let of_worker = TableStore::open(&back, own).unwrap();
    let until_refused = |what: &str, is_permitted: &mut dyn FnMut() -> bool| {
        let changed = Instant::now();
        while is_permitted() {
            assert!(changed.elapsed() < Duration::from_secs(5), "it is still permitted to {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("refused to {what} after {:?}", changed.elapsed());
        assert!(changed.elapsed() < Duration::from_secs(5), "{what}: {:?}", changed.elapsed());
    };
    let fewer = Role { rights: Rights::Read, ..roles[1].clone() };
    apply(&[roles[0].clone(), fewer, roles[2].clone()], &[]);
    until_refused("write", &mut || worker.put(vec![seal()]).is_ok());
    let done = attempts(&back, Some(Rights::Read)).unwrap();
    assert!(differing(&done).is_empty(), "{done:#?}");
    apply(&[roles[0].clone(), roles[2].clone()], &[roles[1].name.clone()]);
    until_refused("read", &mut || of_worker.devices(None, 10).is_ok());
    let done = attempts(&back, None).unwrap();
    assert!(differing(&done).is_empty(), "{done:#?}");
    assert_eq!(reads.devices(None, 10).unwrap().len(), 1, "the others are not affected");
}
