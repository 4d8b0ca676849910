# Fills the disk in a way that does not show in the list of the data folder.
# Arguments: the way, then the number of the system call mmap.
use strict;
use warnings;

my ($way, $mmap) = @ARGV;
my $block = "x" x (1 << 20);
my @open;
chdir($ENV{MOTESEAL_DATA}) or die;
$| = 1;
print "\n";
if ($way eq "deep") {
    for (1 .. 200) {
        my $name = "d" x 200;
        mkdir($name);
        chdir($name) or die;
    }
}
if ($way eq "locked") {
    mkdir("locked", 0300) or die;
    chdir("locked") or die;
}
for my $number (1 .. 16) {
    open(my $file, "+>", "$number") or die;
    syswrite($file, $block);
    # One page of the file: readable, shared.
    syscall($mmap, 0, 4096, 1, 1, fileno($file), 0) if $way eq "mapped";
    unlink("$number") if $way eq "mapped" || $way eq "unlinked";
    push(@open, $file) if $way eq "unlinked";
    close($file) if $way ne "unlinked";
}
sleep(60);
