# Memory of which a known part is used, watched by monitors of memprov's own; and what is left of them.
cd /t
tree=/sys/kernel/mm/damon/admin/kdamonds
free=/sys/module/damon_stat/parameters/enabled
state() { cat $tree/nr_kdamonds; }
# The program comes around within it on a busy host, too: what is used within one interval is all that is told.
sample=200ms
watch() { # KIND [PROGRAM THAT RUNS IT]
	kind=$1
	shift
	"$@" memprov run --output none --state-dir /run/damon --set damon.mode=active --set damon.allow=comm=hot \
		--set damon.watch=$kind --set damon.sample=$sample --set damon.aggregation=1s --set log=debug >/tmp/agent.log 2>&1 &
	agent=$!
}
leave() { # SIGNAL
	kill -$1 $agent && wait $agent
	cat /tmp/agent.log >>/out/damon.log
}
# It watches: it sees who maps what.
watching() { once memprov report --state-dir /run/damon >/dev/null 2>&1; }
# It is said that there is none for such a reason.
refused() { # REASON
	once grep -q "$1" /tmp/agent.log
}
monitored() { [ "$(state)" = 1 ]; }
begun() {
	once monitored
	sleep 1
}
told() { memprov report --state-dir /run/damon --output report-json --pid $hot; }
seconds() { cut -d. -f1 /proc/uptime; }
# How long the aggregations lasted that are pooled.
pooled() { grep -o '"seconds":[0-9]*' /tmp/damon.json | head -n1 | cut -d: -f2; }
# Once an owner is told as touched, and all aggregations that are pooled are of regions that have settled by then; or four
# minutes have passed. An interval is long enough for the program to come around in a slow guest: with 50 ms between
# checks 0.79 to 0.92 of what it uses was found on a host with eleven jobs for two cores.
ask() { # NAME [SECONDS THAT REGIONS TAKE TO SETTLE]
	begin=$(seconds) touched=
	while [ $(($(seconds) - begin)) -lt 240 ]; do
		sleep 2
		told >/tmp/damon.json 2>>/out/damon.log && grep -q '"touched"' /tmp/damon.json || continue
		touched=${touched:-$(seconds)}
		[ $(($(seconds) - touched)) -le $(($(pooled) + ${2:-10})) ] || break
	done
	cp /tmp/damon.json "/out/damon-$1.json"
}
if [ -e $tree ]; then
	echo 0 >/proc/sys/kernel/numa_balancing
	# The kernel may use DAMON for itself: then there is none for us, which is a state and no error.
	if [ -e $free ] && [ "$(cat $free)" = Y ]; then
		hot & hot=$!
		watch auto
		refused 'for itself alone'
		kill $hot
		{ echo "kdamonds $(state)"; echo "stat $(cat $free)"; grep -c 'for itself alone' /tmp/agent.log; } >/out/damon-taken
		leave TERM
		echo N >$free
	fi
	for kind in fvaddr vaddr; do
		watch $kind
		watching
		hot & hot=$!
		ask $kind
		kill $hot
		leave TERM
		echo "$kind $(state)" >>/out/damon-left
	done
	# Physical memory is fourteen times as much as the program has: regions take some twenty aggregations to settle on it.
	watch paddr
	watching
	hot & hot=$!
	ask paddr 40
	kill $hot
	leave TERM
	echo "paddr $(state)" >>/out/damon-left
	# Without BPF ours is asked. Two are watched, one of which only gets what CPU the other leaves, and each is told of by what
	# was found of it; who calls is not seen, so that names of files tell memory apart.
	nice -n 19 hot named & other=$!
	hot named & hot=$!
	watch fvaddr lesser
	ask asked
	memprov report --state-dir /run/damon --output table >/out/damon.txt 2>>/out/damon.log
	lesser memprov check --state-dir /run/damon --set damon.mode=active --set damon.allow=comm=hot --output json >/out/damon-check.json
	kill $hot $other
	leave TERM
	echo "asked $(state)" >>/out/damon-left
	hot & hot=$!
	# Killed, the agent leaves its monitor; the next one ends it, and so does undo.
	watch vaddr
	begun
	leave KILL
	echo "killed $(state)" >>/out/damon-left
	memprov undo --state-dir /run/damon
	echo "undone $(state) $(ls /run/damon/damon 2>/dev/null)" >>/out/damon-left
	watch vaddr
	begun
	leave KILL
	memprov run --output none --state-dir /run/damon --for 1s >>/out/damon.log 2>&1
	echo "restarted $(state) $(ls /run/damon/damon 2>/dev/null)" >>/out/damon-left
	# What somebody else set up stays as it is.
	echo 1 >$tree/nr_kdamonds
	echo 1 >$tree/0/contexts/nr_contexts
	echo vaddr >$tree/0/contexts/0/operations
	(cd $tree && find . -type f -exec cat {} + >/tmp/before 2>/dev/null)
	watch auto
	refused 'somebody else'
	leave TERM
	(cd $tree && find . -type f -exec cat {} + >/tmp/after 2>/dev/null)
	cmp -s /tmp/before /tmp/after && echo "foreign $(state)" >>/out/damon-left
	echo 0 >$tree/nr_kdamonds
	kill $hot
fi
