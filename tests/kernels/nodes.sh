# Memory of which every page lies on a known node, before and after it moves; and page faults told one by one.
cd /t
echo 0 >/proc/sys/kernel/numa_balancing
# It waits: its faults are told from the begin of the watch on.
touched >/tmp/touched & touched=$!
memprov run --output none --state-dir /run/nodes --set access.faults=comm=touched --set log=debug >>/out/nodes.log 2>&1 &
agent=$!
n=0
until memprov report --state-dir /run/nodes >/dev/null 2>&1 || [ $n -ge 120 ]; do
	sleep 1
	n=$((n + 1))
done
# Once a file has a word, or two minutes have passed.
said() { # WORD FILE
	n=0
	until grep -q "$1" "$2" || [ $n -ge 120 ]; do
		sleep 1
		n=$((n + 1))
	done
}
tell() {
	memprov report --state-dir /run/nodes --output report-json --pid $1 >/out/nodes-$2.json 2>>/out/nodes.log
	memprov report --state-dir /run/nodes --output otlp-json --set export.detail=owners --pid $1 >/out/nodes-$2.otlp.json 2>>/out/nodes.log
	memprov report --state-dir /run/nodes --output table --pid $1 >/out/nodes-$2.txt 2>>/out/nodes.log
}
placed >/tmp/placed & placed=$!
said holds /tmp/placed
tell $placed first
sleep 5
tell $placed before
kill -USR1 $placed
said moved /tmp/placed
tell $placed after
cat /proc/$placed/numa_maps >/out/nodes.numa_maps
kill $placed
placed wrong >/tmp/wrong & wrong=$!
said holds /tmp/wrong
tell $wrong first
sleep 5
tell $wrong wrong
kill -USR1 $wrong
said moved /tmp/wrong
tell $wrong right
kill $wrong
placed large >/tmp/large & large=$!
said holds /tmp/large
tell $large large
cat /proc/$large/numa_maps >/out/nodes-large.numa_maps
kill $large
kill -USR1 $touched
said touched /tmp/touched
# Samples are told once all rings were read twice.
sleep 1
memprov report --state-dir /run/nodes --output report-json --pid $touched >/out/faults.json 2>>/out/nodes.log
kill $touched
kill $agent && wait $agent
