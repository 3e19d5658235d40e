# Memory of which every page lies on a known node, before and after it moves; and page faults told one by one.
cd /t
echo 0 >/proc/sys/kernel/numa_balancing
# It waits: its faults are told from the begin of the watch on.
touched >/tmp/touched & touched=$!
memprov run --output none --state-dir /run/nodes --set access.faults=comm=touched --set log=debug >>/out/nodes.log 2>&1 &
agent=$!
once memprov report --state-dir /run/nodes >/dev/null 2>&1
tell() {
	memprov report --state-dir /run/nodes --output report-json --pid $1 >/out/nodes-$2.json 2>>/out/nodes.log
	memprov report --state-dir /run/nodes --output otlp-json --set export.detail=owners --pid $1 >/out/nodes-$2.otlp.json 2>>/out/nodes.log
	memprov report --state-dir /run/nodes --output table --pid $1 >/out/nodes-$2.txt 2>>/out/nodes.log
}
placed >/tmp/placed & placed=$!
once grep -q holds /tmp/placed
tell $placed first
sleep 5
tell $placed before
kill -USR1 $placed
once grep -q moved /tmp/placed
tell $placed after
cat /proc/$placed/numa_maps >/out/nodes.numa_maps
kill $placed
placed wrong >/tmp/wrong & wrong=$!
once grep -q holds /tmp/wrong
tell $wrong first
sleep 5
tell $wrong wrong
kill -USR1 $wrong
once grep -q moved /tmp/wrong
tell $wrong right
kill $wrong
placed large >/tmp/large & large=$!
once grep -q holds /tmp/large
tell $large large
cat /proc/$large/numa_maps >/out/nodes-large.numa_maps
kill $large
kill -USR1 $touched
once grep -q touched /tmp/touched
# Samples are told once all rings were read twice: as many as it touched pages.
told_of() { # SITE SAMPLES
	grep -q "$1[^{]*\"population\":\"faults\",\"sums\":{\"samples\":{\"attributed\":$2}" /out/faults.json
}
all_told() {
	memprov report --state-dir /run/nodes --output report-json --pid $touched >/out/faults.json 2>>/out/nodes.log
	told_of touched_memory 2000 && told_of read_memory 100
}
once all_told
kill $touched
kill $agent && wait $agent
