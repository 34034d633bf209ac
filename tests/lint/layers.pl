#!/usr/bin/perl
# Refuses what the layers forbid: an include runs one way (shm <- core <- persist <- tools), one file owns the atomics,
# two kinds of file own the stores, one kind owns YAML. Comments do not count, string literals do.
#
#   tests/lint/layers.pl [ROOT]      a line per finding and exit status 1 when something is wrong
use strict;
use warnings;
use File::Find;
use File::Basename;

chdir($ARGV[0] // dirname($0) . '/../..') or die "layers: no such folder: $!\n";

# A rule: why; the files it looks at; the files it leaves out; what a line may not match; unless it matches this too.
my $include = qr/^\s*#\s*include\s*/;
my $product = qr{^(shm|core|persist|tools)/};
my $none = qr/(?!)/;
my @rules = (
    # Direction. Nothing of the product knows the tests or the benches.
    ['shm includes a higher layer', qr{^shm/}, $none, qr{$include[<"]((core|persist|tools|tests|bench)/|holdfast)}],
    ['core includes a higher layer', qr{^core/}, $none, qr{$include[<"](persist|tools|tests|bench)/}],
    ['persist includes a higher layer', qr{^persist/}, $none, qr{$include[<"](tools|tests|bench)/}],
    ['tools includes tests or benches', qr{^tools/}, $none, qr{$include[<"](tests|bench)/}],

    # Includes carry their folder, so that the layer shows where it is used. Examples are written as a stranger would.
    ['an include without its folder', $product, qr{^core/examples/}, qr{$include"}, qr{"[a-z0-9_-]+/|"holdfast\.h"}],
    ['an include that climbs', qr{}, $none, qr{$include"[^"]*\.\./}],
    ['the installed header includes more than stdint.h and stddef.h', qr{^core/include/}, $none, $include,
        qr{<(stdint|stddef)\.h>}],

    # Atomics and fences have one home. `volatile sig_atomic_t` is what a signal handler may touch.
    ['an atomic outside shm/atomic.h', qr{^(shm|core|persist|tools|tests)/}, qr{^shm/atomic\.h$},
        qr{stdatomic\.h|\b_Atomic\b|\bvolatile\b|\batomic_[a-z_]+\s*\(|\b__sync_|\b__atomic_},
        qr{\bvolatile sig_atomic_t\b}],

    # Libraries stay where they belong.
    ['SQLite outside persist/sqlite*', $product, qr{^persist/sqlite\w*\.[ch]$},
        qr{$include([<"]sqlite3|"persist/sqlite_impl)}],
    ['libpq outside persist/postgres*', $product, qr{^persist/postgres\w*\.[ch]$},
        qr{$include([<"](libpq|postgres_ext)|"persist/postgres_impl)}],
    ['libyaml outside core/policy*.c', $product, qr{^core/policy\w*\.c$}, qr{$include[<"]yaml}],
    ['libcrypto outside persist', $product, qr{^persist/}, qr{$include[<"]openssl/}],
    ['liburcu in shm: its nodes are pointers', qr{^shm/}, $none, qr{$include[<"]urcu}],
    ['jemalloc in the library', qr{^(shm|core)/}, $none, qr{$include[<"]jemalloc}],
    ['jansson in the library', qr{^(shm|core)/}, $none, qr{$include[<"]jansson}],

    # The library never ends its host, prints for it or takes its signals.
    ['shm and core leave the host process alone', qr{^(shm|core)/}, qr{^core/examples/},
        qr{\b(abort|exit|_exit|printf|puts|perror|signal|sigaction|assert)\s*\(}],
);

my @files;
find({no_chdir => 1, wanted => sub { push @files, $File::Find::name =~ s{^\./}{}r if -f && /\.(c|h|cc|cpp)$/ }},
    grep { -d } qw(shm core persist tools tests bench));
@files = sort @files;

my $findings = 0;
for my $file (@files) {
    open my $in, '<', $file or die "layers: $file: $!\n";
    my $text = do { local $/; <$in> };
    close $in;
    # Comments become white space with the same line breaks; strings and characters stay.
    $text =~ s{("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*}
              {defined $1 ? $1 : ' ' . "\n" x ($& =~ tr/\n//)}gse;
    my @lines = split /\n/, $text;
    for my $rule (@rules) {
        my ($why, $where, $except, $regex, $unless) = @$rule;
        next if $file !~ $where || $file =~ $except;
        for my $i (0 .. $#lines) {
            next if $lines[$i] !~ $regex || (defined $unless && $lines[$i] =~ $unless);
            printf "%s:%d: %s: %s\n", $file, $i + 1, $why, $lines[$i] =~ s/^\s+//r;
            $findings++;
        }
    }
}
printf "layers: %d files, %d findings\n", scalar @files, $findings;
exit($findings ? 1 : 0);
