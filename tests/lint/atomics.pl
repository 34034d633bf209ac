#!/usr/bin/perl
# An atomic without a named partner is a bug. Every call of an accessor of shm/atomic.h says in a comment which edge it is
# an end of (E<number>), or why it needs none (`relaxed:`, `plain:`), or that the operation takes effect there (LIN). The
# comment is on its line, or just above its statement or a run of such statements, or above its function if that is short.
# `relaxed everywhere below:` speaks for all relaxed accesses in the rest of the file.
# The table of edges in shm/README.md (`| E<number> | one end | other end | what is ordered | else |`) holds every edge
# that the code names, and only those; the functions that it names exist.
#
#   tests/lint/atomics.pl [ROOT]      a line per finding and exit status 1 when something is wrong
use strict;
use warnings;
use File::Basename;

chdir($ARGV[0] // dirname($0) . '/../..') or die "atomics: no such folder: $!\n";

my $accessor = qr/\bhf_(?:(?:load|store|cas|add|sub|or|and|xchg)_(?:rlx|acq|rel|acqrel|seq)_u(?:8|32|64|128)|fence_(?:acq|rel|seq))\s*\(/;
my $ordered = qr/\bhf_(?:\w+_(?:acq|rel|acqrel|seq)_u|fence_)/;
my $mark = qr/\bE\d+\b|\brelaxed:|\bplain:|\bLIN\b/;

my $short = 16; # lines

my ($findings, $calls, %edges_in_code, %functions) = (0, 0);
sub finding { print @_, "\n"; $findings++ }

for my $file (sort grep { $_ ne 'shm/atomic.h' } glob('{shm,core,persist}/*.[ch] tools/*.[ch] tools/*/*.[ch]')) {
    open my $in, '<', $file or die "atomics: $file: $!\n";
    chomp(my @lines = <$in>);
    close $in;

    # Split each line into its code and its comment.
    my (@code, @comment);
    my $inside = 0;
    for my $line (@lines) {
        my ($code, $comment) = ('', '');
        my $rest = $line;
        while ($rest ne '') {
            if ($inside) {
                $rest =~ s{^(.*?)\*/}{} ? ($comment .= " $1", $inside = 0) : ($comment .= " $rest", $rest = '');
            } elsif ($rest =~ s{^((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?!/[*/]).)*)/\*}{}) {
                ($code .= $1, $inside = 1);
            } else {
                $comment .= $1 if $rest =~ s{//(.*)$}{};
                ($code .= $rest, $rest = '');
            }
        }
        push @code, $code;
        push @comment, $comment;
        $edges_in_code{$_} //= "$file:" . scalar @code for $comment =~ /\b(E\d+)\b/g;
        $functions{$1} = 1 while $code =~ /\b(hf_\w+|holdfast_\w+)\s*\(/g;
    }

    for my $i (0 .. $#lines) {
        next if $code[$i] !~ $accessor;
        $calls++;
        next if $code[$i] !~ $ordered && grep { /\brelaxed everywhere below:/ } @comment[0 .. $i];
        my $said = $comment[$i];
        # A statement may go on: the comment may stand at its end.
        for (my $j = $i; $j < $#lines && $code[$j] !~ /[;{}]\s*$/;) { $said .= $comment[++$j] }
        # Upwards: the rest of the statement, comments, and statements that access atomics as well.
        for (my $j = $i - 1; $j >= 0 && $said !~ $mark; $j--) {
            my $blank = $code[$j] =~ /^\s*$/;
            last if $blank && $comment[$j] eq '';
            last if !$blank && $code[$j] =~ /[;{}:]\s*$/ && $code[$j] !~ $accessor;
            $said .= $comment[$j];
        }
        # A short function may say it in its head.
        if ($said !~ $mark) {
            my ($head, $end) = ($i, $i);
            $head-- while $head > 0 && $code[$head] !~ /^\{/;
            $end++ while $end < $#lines && $code[$end] !~ /^\}/;
            if ($end - $head <= $short) {
                my $j = $head - 1;
                $j-- while $j > 0 && $code[$j] !~ /^\s*$/; # the function's name and parameters
                for (; $j >= 0 && $code[$j] =~ /^\s*$/ && $comment[$j] ne ''; $j--) { $said .= $comment[$j] }
            }
        }
        finding("$file:", $i + 1, ": an atomic access without E<number>, relaxed:, plain: or LIN: ", $lines[$i] =~ s/^\s+//r)
            if $said !~ $mark;
    }
}

if (open my $in, '<', 'shm/README.md') {
    my %table;
    while (<$in>) {
        next if !/^\s*\|\s*(E\d+)\s*\|(.*)\|\s*$/;
        my ($edge, @cells) = ($1, split /\|/, $2);
        finding("shm/README.md:$.: $edge is there twice") if $table{$edge}++;
        finding("shm/README.md:$.: $edge names no two ends") if @cells < 2 || grep { !/\w/ } @cells[0, 1];
        for my $cell (@cells[0, 1]) {
            for ($cell =~ /\b(hf_\w+|holdfast_\w+)\b/g) {
                finding("shm/README.md:$.: $edge names $_, which is not in the code") if !$functions{$_};
            }
        }
        finding("shm/README.md:$.: $edge is not in the code") if !$edges_in_code{$edge};
    }
    for (sort keys %edges_in_code) {
        finding("$edges_in_code{$_}: $_ is not in the table of shm/README.md") if !$table{$_};
    }
}

print "atomics: $calls accesses, ", scalar keys %edges_in_code, " edges, $findings findings\n";
exit($findings ? 1 : 0);
