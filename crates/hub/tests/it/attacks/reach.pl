# Tries what a confined agent must not do, and prints which attempts succeed.
# Arguments: a folder outside, the process id of the hub, then the names and numbers of system calls.
use strict;
use warnings;
use Fcntl;
use Socket;

my ($outside, $hub, %call) = @ARGV;
my $data = $ENV{MOTESEAL_DATA};
$| = 1;

sub attempt {
    my ($what, $is_done) = @_;
    print "$what\n" if $is_done;
}

sub called {
    my ($name, @arguments) = @_;
    return syscall($call{$name}, @arguments) != -1;
}

my $found = 0;
for my $descriptor (3 .. 255) {
    $found++ if called("fcntl", $descriptor, F_GETFD, 0);
}
attempt("inherited $found descriptors", $found);
attempt("environment " . join(" ", sort keys %ENV), 1);

# Permitted, so that the other results mean something.
attempt("write own data", open(my $own, ">", "$data/own"));
attempt("make a pair of streams", socketpair(my $left, my $right, AF_UNIX, SOCK_STREAM, 0));

# Before there are children, which may be signalled.
my $parent = getppid();
# The call succeeds also if it reaches no process. The hub ends at this signal, which others ignore.
called("kill", -1, 23);
attempt("signal the hub", called("kill", $hub, 0));
attempt("signal the hub's group", called("kill", -$hub, 0));
attempt("signal a thread of the hub", called("tkill", $hub, 0));
attempt("signal a thread of the hub's process", called("tgkill", $hub, $hub, 0));
attempt("signal the parent", called("kill", $parent, 0));
attempt("open the hub as a descriptor", called("pidfd_open", $hub, 0));
attempt("signal through a descriptor", fcntl($left, 8, $hub + 0));
attempt("choose the signal of a descriptor", fcntl($left, 10, 9));
attempt("signal through a descriptor's process", fcntl($left, 15, pack("ii", 1, $hub)));
attempt("signal through a socket", ioctl($left, 0x8901, pack("i", $hub)));
attempt("signal through a socket's group", ioctl($left, 0x8902, pack("i", $hub)));

my ($parameter, $cpu, $limit) = (pack("i", 0), pack("Q", 1), pack("QQ", 10, 10));
attempt("schedule the hub as idle", called("sched_setscheduler", $hub, 5, $parameter));
attempt("bind the hub to a processor", called("sched_setaffinity", $hub, 8, $cpu));
attempt("lower the hub's priority", called("setpriority", 0, $hub, 19));
attempt("lower the user's priority", called("setpriority", 2, 0, 19));
attempt("lower the hub's priority of files", called("ioprio_set", 1, $hub, 3 << 13));
attempt("lower the user's priority of files", called("ioprio_set", 3, $<, 3 << 13));
attempt("limit the hub", called("prlimit64", $hub, 7, $limit, 0));

attempt("outlive the parent", called("prctl", 1, 0, 0, 0, 0));
attempt("hide from the hub", called("prctl", 4, 0, 0, 0, 0));
attempt("adopt orphans", called("prctl", 36, 1, 0, 0, 0));
attempt("leave the session", called("setsid"));

for my $file ("other/secret", "keys/op.key.pem") {
    my $path = "$outside/$file";
    attempt("read $file", open(my $read, "<", $path));
    attempt("write $file", open(my $write, ">>", $path));
    attempt("permit $file", chmod(0666, $path));
    attempt("link $file", link($path, "$data/link"));
    symlink($path, "$data/symlink");
    attempt("read $file by a link", open(my $linked, "<", "$data/symlink"));
    unlink("$data/symlink");
    attempt("rename $file", rename($path, "$data/renamed"));
    attempt("delete $file", unlink($path));
}
attempt("list another agent's data", opendir(my $other, "$outside/other"));
attempt("list the folder of keys", opendir(my $keys, "$outside/keys"));
attempt("list /etc/ssl", opendir(my $ssl, "/etc/ssl"));
for my $file ("environ", "maps", "cmdline", "fd/0") {
    attempt("read $file of the hub", open(my $read, "<", "/proc/$hub/$file"));
}
for my $file ("mem", "oom_score_adj", "comm") {
    attempt("write $file of the hub", open(my $write, "+<", "/proc/$hub/$file"));
}

# Files of the package may be read.
open(my $leased, "<", "library") or die;
attempt("delay other readers", fcntl($leased, 1024, 1));
close($leased);
attempt("truncate while reading", sysopen(my $read, "library", O_RDONLY | O_TRUNC));
attempt("truncate without access", sysopen(my $none, "library", 3 | O_TRUNC));
attempt("truncate", truncate("library", 0));
my ($name, $how) = ("library", pack("QQQ", O_RDONLY | O_TRUNC, 0, 0));
attempt("truncate by openat2", called("openat2", -100, $name, $how, 24));

my $service = pack_sockaddr_un("$outside/service");
for my $kind (SOCK_DGRAM, SOCK_RAW) {
    if (socketpair(my $one, my $two, AF_UNIX, $kind, 0)) {
        attempt("make a pair of kind $kind", 1);
        attempt("send to a service", send($one, "attack", 0, $service));
    }
}
attempt("make a local socket", socket(my $local, AF_UNIX, SOCK_DGRAM, 0));
attempt("make a socket", socket(my $inet, AF_INET, SOCK_DGRAM, 0));
attempt("send to a service through a stream", defined(send($left, "attack", 0, $service)) && 0);
attempt("connect to a service", connect($left, $service));

my $child = fork();
if (defined $child) {
    exit(0) if $child == 0;
    waitpid($child, 0);
    attempt("start a process", 1);
}
print "end\n";
