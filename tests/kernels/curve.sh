# What a monitor of memprov's own finds of memory of which a known part is used, and what its thread takes: for each number of
# regions and each interval between checks (20 of them an aggregation).
cd /t
tree=/sys/kernel/mm/damon/admin/kdamonds
told() { memprov report --state-dir /run/curve --output report-json --pid $hot 2>/dev/null; }
touched() { told | grep -q '"touched"'; }
# Clock ticks of the monitor's thread, and hundredths of a second since boot.
ticks() { sed 's/.*) //' "/proc/$(cat $tree/0/pid)/stat" | awk '{ print $12 + $13 }'; }
now() { awk '{ print int($1 * 100) }' /proc/uptime; }
echo 0 >/proc/sys/kernel/numa_balancing
for regions in $REGIONS; do
	for sample in $SAMPLES; do
		memprov run --output none --state-dir /run/curve --set damon.mode=active --set damon.allow=comm=hot \
			--set damon.watch=fvaddr --set damon.regions=$regions --set damon.sample=${sample}ms \
			--set damon.aggregation=$((sample * 20))ms >>/out/log 2>&1 &
		agent=$!
		once memprov report --state-dir /run/curve >/dev/null 2>&1
		hot & hot=$!
		once touched
		sleep 5
		ticks=$(ticks) now=$(now)
		sleep 12
		told >/out/$regions-$sample.json
		echo "$regions $sample $(($(ticks) - ticks)) $(($(now) - now))" >>/out/points
		kill $hot
		kill $agent && wait $agent
	done
done
