"""Scripts as people have them at GPU boxes. What a faithful playbook of each must hold, and must not, was written down before one was made."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from runbook.shell_script.write import write
from tests.shell_script.test_translate import translated


class Case(NamedTuple):
    """A script; texts that its playbook has and has not; what is warned of at least."""

    script: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()


CASES = {
    "functions": Case(
        """#!/bin/bash
log() { echo "[$(date +%T)] $*" >> /tmp/x/log.txt; }
ready() {
  curl -sf localhost:8000/health > /dev/null
}
log starting
nohup python -m sglang.launch_server --port 8000 > /tmp/x/server.log 2>&1 &
log waiting
for i in $(seq 1 100); do ready && break; sleep 5; done
log done
""",
        has=('log() { echo "[$(date +%T)] $*"', "log starting", "log waiting", "log done", "ready() {", "launch:"),
    ),
    "here_document": Case(
        """cat > /tmp/x/config.yaml <<EOF
model: $MODEL_PATH
EOF
cat <<'END' >> /tmp/x/config.yaml
raw: $NOT_EXPANDED
END
python train.py --config /tmp/x/config.yaml
""",
        has=("model: $MODEL_PATH", "\n      EOF\n", "raw: $NOT_EXPANDED", "\n      END\n", "python train.py"),
        warns=("from-outside",),
    ),
    "strict": Case(
        "#!/usr/bin/env bash\nset -euo pipefail\nexport CUDA_VISIBLE_DEVICES=0,1\npython a.py | tee a.log\npython b.py\n",
        has=("python a.py | tee a.log", "CUDA_VISIBLE_DEVICES: '0,1'", "python b.py"),
        lacks=("+e", "+u", "+o"),
    ),
    "lenient": Case("python a.py\npython b.py $FLAGS\n", has=("set +eu", "python a.py", "python b.py $FLAGS"), warns=("from-outside",)),
    "trap": Case(
        """TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
nohup python -m vllm.entrypoints.openai.api_server --port 8100 > server.log 2>&1 &
curl -sf localhost:8100/v1/models | tee $TMP/models.json
""",
        has=("always:", 'rm -rf "$TMP"', "${{ steps.tmp.stdout }}", "tee $TMP/models.json", "port", "8100"),
        lacks=("attach:",),
    ),
    "pid_file": Case(
        """nohup python -m sglang.launch_server --port 30000 > /tmp/s.log 2>&1 & echo $! > /tmp/s.pid
sleep 60
curl -s localhost:30000/v1/models
kill $(cat /tmp/s.pid)
""",
        has=("${{ steps.server.pid }}", "> /tmp/s.pid", "kill $(cat /tmp/s.pid)", "launch:", "sleep 60"),
        lacks=("echo $! >",),
    ),
    "counted_wait": Case(
        """for i in $(seq 1 100); do curl -sf http://localhost:8000/health && break; sleep 5; done
if [ $i -eq 100 ]; then echo "no server" >&2; exit 1; fi
echo up after $i tries
""",
        has=("for i in $(seq 1 100)", "if [ $i -eq 100 ]", "echo up after $i tries"),
        lacks=("wait_healthy",),
    ),
    "until": Case(
        "until curl -sf http://localhost:8000/health >/dev/null; do\n  kill -0 $SERVER || exit 1\n  sleep 2\ndone\necho ok > /tmp/ok\n",
        has=("wait_healthy", "echo ok > /tmp/ok"),
        warns=("endless-loop",),
    ),
    "timeout": Case(
        "timeout 600 bash -c 'until curl -sf localhost:8000/health; do sleep 2; done' || exit 1\ntimeout -k 5 60 python bench.py > bench.txt\n",
        has=("timeout 600 bash -c", "timeout -k 5 60 python bench.py > bench.txt"),
    ),
    "docker": Case(
        """IMAGE=lmsysorg/sglang:latest
docker rm -f sglang 2>/dev/null
docker run -d --gpus all --name sglang -p 30000:30000 -v /data:/data $IMAGE python3 -m sglang.launch_server --port 30000
docker exec sglang pkill -9 -f scheduler
while ! curl -s localhost:30000/health; do sleep 3; done
docker logs sglang 2>&1 | grep -c ERROR
""",
        has=(
            "docker rm -f sglang",
            "docker run -d --gpus all",
            "IMAGE: lmsysorg/sglang:latest",
            "docker exec sglang pkill",
            "docker logs sglang",
        ),
        lacks=("kill:", "attach:", "launch:"),
    ),
    "srun": Case(
        "srun -N2 --gres=gpu:8 --ntasks-per-node=1 bash -lc 'torchrun --nnodes 2 train.py'\nsqueue -u $USER | grep R\n",
        has=("srun -N2 --gres=gpu:8", "squeue -u $USER | grep R"),
        lacks=("launch:",),
    ),
    "tmux": Case(
        "tmux new -d -s srv 'python -m sglang.launch_server --port 8000 2>&1 | tee srv.log'\nsleep 120\ntmux send-keys -t srv C-c\n",
        has=("tmux new -d -s srv", "tmux send-keys -t srv C-c", "sleep 120"),
        lacks=("launch:",),
    ),
    "wide_kill": Case(
        "pkill -9 -f sglang::scheduler\npkill -9 -f launch_server || true\npkill -u bob python\nkill -0 4711\nkill -USR1 4712\n",
        has=("pkill -u bob python", "kill -0 4711", "kill -USR1 4712"),
        lacks=("pid: 4711", "pid: 4712"),
        warns=("hard-kill",),
    ),
    "gpu_table": Case(
        """nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader | while read -r pid mem; do
  echo "$pid uses $mem" >> /tmp/gpu.txt
done
nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits | awk -F, '$2 > 1000 {print $1}' | xargs -r -n1 echo busy
""",
        has=("while read -r pid mem; do", "xargs -r -n1 echo busy"),
        lacks=("wait_gpu_free", "kill:"),
    ),
    "edit": Case(
        "F=/opt/sglang/python/sglang/srt/models/llama_eagle3.py\nsed -i 's/x = 1/x = 2/' $F\ngrep -n 'x = 2' $F | tee -a /tmp/notes\n",
        has=("sed -i 's/x = 1/x = 2/' $F", "tee -a /tmp/notes"),
        warns=("lasting-edit",),
    ),
    "environment": Case(
        """source /srv/venv/bin/activate
cd /srv/app
export CUDA_VISIBLE_DEVICES=0
export PYTHONPATH=$PWD:$PYTHONPATH
nohup python serve.py --port 9000 > serve.log 2>&1 &
curl -sf localhost:9000/ping
tail -3 serve.log > /tmp/last
""",
        has=(
            "source /srv/venv/bin/activate",
            "cwd: /srv/app",
            "export PYTHONPATH=$PWD:$PYTHONPATH",
            "log: ",
            "serve.log",
            "tail -3 serve.log > /tmp/last",
            "CUDA_VISIBLE_DEVICES",
        ),
    ),
    "own_environment": Case(
        "source venv/bin/activate\ncd app\nnohup python serve.py --port 9000 > serve.log 2>&1 &\ncurl -sf localhost:9000/ping\n",
        has=("source venv/bin/activate\n        cd app\n", "launch:"),
        lacks=("cwd: ",),
    ),
    "jump": Case(
        "ssh -J gate -i ~/.ssh/k me@box 'cd /opt && ./build.sh'\nssh -J gate -i ~/.ssh/k me@box 'ls > /tmp/list'\necho finished > /tmp/here\n",
        has=("gpu: me@box", "here: local", "host: here", "cwd: /opt"),
        lacks=("cwd: /opt\n  - host: here",),
        warns=("ssh-option",),
    ),
    "copy": Case(
        'scp -r ./src box:/opt/src\nrsync -av data/ box:/data/\nssh box "cd /opt/src && make -j8"\nscp box:/opt/src/out.txt .\n',
        has=("scp -r ./src box:/opt/src", "rsync -av data/ box:/data/", "make -j8", "scp box:/opt/src/out.txt .", "here: local"),
    ),
    "process_substitution": Case(
        "if grep -q ok <(curl -s localhost:8000/status); then echo yes > /tmp/y; fi\ndiff <(sort a) <(sort b) > /tmp/d\n",
        has=("grep -q ok <(curl -s localhost:8000/status)", "diff <(sort a) <(sort b) > /tmp/d"),
    ),
    "case": Case(
        """MODE=${1:-eagle}
case $MODE in
  eagle) ARGS="--speculative-algorithm EAGLE3 --speculative-num-steps 3" ;;
  *) ARGS="" ;;
esac
nohup python -m sglang.launch_server --port 8000 $ARGS > server.log 2>&1 &
""",
        has=("MODE: eagle", "case $MODE in", "$ARGS"),
        warns=("argument",),
    ),
    "arrays": Case(
        """BASE=8000
PORT=$((BASE+1))
ARGS=(--model-path /m --port "$PORT")
ARGS+=(--tp 2)
unset HTTP_PROXY
python -m sglang.launch_server "${ARGS[@]}" > out.log 2>&1 &
until curl -sf localhost:$PORT/health; do sleep 1; done
""",
        has=('ARGS=(--model-path /m --port "$PORT")', "ARGS+=(--tp 2)", "unset HTTP_PROXY", "$((BASE+1))", '"${ARGS[@]}"'),
        lacks=("port: 80\n",),
    ),
    "addresses": Case(
        """curl -sk https://localhost:8443/v1/models
curl -s https://hub.example/api/models
curl -s http://10.0.0.7:9090/metrics
curl -s localhost:8000/v1/models
curl -s localhost:8001/v1/models
""",
        has=("https://localhost:8443/v1/models", "https://hub.example", "http://10.0.0.7:9090", "port: 8000", "port: 8001"),
        lacks=("port: 8443", "http://hub.example"),
    ),
    "secrets": Case(
        """export HF_TOKEN=hf_abcdefghijklmnop
curl -s -H "Authorization: Bearer $API_KEY" localhost:8000/v1/models
curl -s -H "X-Trace: $TRACE" localhost:8000/v1/models
huggingface-cli download org/model
""",
        has=(
            "Bearer ${{ secrets.API_KEY }}",
            "# - line 2: `API_KEY` is a secret",
            "name: API_KEY",
            "name: HF_TOKEN",
            'curl -s -H "X-Trace: $TRACE"',
        ),
        lacks=("hf_abcdefghijklmnop",),
        warns=("secret", "from-outside"),
    ),
    "jobs": Case(
        """for i in 1 2 3; do
  python client.py --id $i > out.$i &
done
wait
cat out.1 out.2 out.3 > all.txt
./sweep.sh &
SWEEP=$!
sleep 3
wait $SWEEP
""",
        has=("python client.py --id $i > out.$i &", "\n      wait\n", "./sweep.sh &", "SWEEP=$!", "wait $SWEEP", "sleep 3"),
        lacks=("launch:",),
    ),
    "texts": Case(
        """# it's "quoted" in `a` comment: $(rm -rf /)
read -r FIRST <<< "one two"
[[ $FIRST == one* && -z ${SECOND:-} ]] && echo match > /tmp/m || echo none > /tmp/m
echo '${{ not.ours }}' # don't
mkdir -p /tmp/d && cd /tmp/d && touch f && (cd / && ls > /tmp/root)
pwd > /tmp/where
""",
        has=('read -r FIRST <<< "one two"', "[[ $FIRST == one*", "$${{ not.ours }}", "pwd > /tmp/where", "(cd / && ls > /tmp/root)"),
    ),
    "leaves_early": Case(
        "if curl -sf localhost:8000/health; then echo already up; exit 0; fi\nnohup python -m sglang.launch_server --port 8000 > s.log 2>&1 &\n",
        has=("exit 0", "nohup python -m sglang.launch_server --port 8000 > s.log 2>&1 &"),
        lacks=("launch:",),
    ),
    "remote_state": Case(
        "MODEL=/m\nssh box \"cd /srv; export A=1; nohup python -m sglang.launch_server --model $MODEL --port 8000 > s.log 2>&1 &\"\nssh box 'ls; curl -s localhost:8000/v1/models'\n",
        has=("gpu: box", "cwd: /srv", "--model, /m", "run: ls"),
        lacks=("here:", "attach:"),
    ),
    "two_servers": Case(
        """nohup python -m sglang.launch_server --disaggregation-mode prefill --port 30000 > p.log 2>&1 &
nohup python -m sglang.launch_server --disaggregation-mode decode --port 30001 > d.log 2>&1 &
curl -sf localhost:30000/v1/models
curl -sf localhost:30001/v1/models
""",
        has=("server: server}", "server: server2}", "step: server}", "step: server2}"),
        lacks=("attach:",),
    ),
    "choices": Case(
        """[ -f /opt/venv/bin/activate ] && source /opt/venv/bin/activate
if [ -z "$CUDA_VISIBLE_DEVICES" ]; then export CUDA_VISIBLE_DEVICES=0; fi
PORT=8000
if [[ "$HOSTNAME" == gpu7* ]]; then PORT=8007; fi
python3 -m sglang.launch_server --port $PORT --tp 2 > s.log 2>&1 &
curl -sf localhost:$PORT/health
python bench.py
""",
        has=(
            "[ -f /opt/venv/bin/activate ] && source",
            "then export CUDA_VISIBLE_DEVICES=0",
            "PORT=8007; fi",
            "python bench.py",
            "launch:",
        ),
        lacks=("one piece", "attach:"),
    ),
    "a_file_decides": Case(
        "[ -f done ] && X=1\ncurl -sf localhost:8000/v1/models\ntouch done\necho $X > x\n",
        has=("one piece: `$X`",),
        lacks=("request:",),
    ),
    "training": Case(
        'torchrun --nproc-per-node 8 train.py > train.log 2>&1 &\nTRAIN=$!\nwait $TRAIN\necho "exit $?" >> result\ngrep loss train.log\n',
        has=("torchrun --nproc-per-node 8 train.py > train.log 2>&1 &", "wait $TRAIN"),
        lacks=("launch:",),
    ),
    "status_of_a_server": Case(
        "vllm serve m --port 8000 &\ncurl -sf localhost:8000/health\nwait $!\necho $? > status\n",
        has=("vllm serve m --port 8000 &", "wait $!", "echo $? > status"),
        lacks=("launch:",),
    ),
    "of_a_function": Case(
        "start() { nohup python -m sglang.launch_server --port $1 > s.log 2>&1 & }\nstart 8000\nuntil curl -sf localhost:8000/health; do sleep 1; done\n",
        has=("start 8000", "http://localhost:8000/health"),
        lacks=("attach:", "launch:"),
    ),
    "narrow_kills": Case(
        "pkill -f 'sglang.launch_server --port 8001'\nfuser -k 8000/tcp 8001/tcp\nps aux | grep python | grep train | awk '{print $2}' | xargs kill\npkill -n vllm\n",
        has=("cmdline: sglang.launch_server --port 8001", "fuser -k 8000/tcp 8001/tcp", "grep train", "pkill -n vllm"),
        lacks=("profile:", "port: 8000"),
    ),
    "saved_answers": Case(
        "curl -s localhost:8000/v1/models | jq . > models.json\ncurl -s localhost:8000/v1/models | tee m.json\ngrep ERROR app.log > errors.txt\ngrep ERROR app.log | wc -l\n",
        has=("jq . > models.json", "tee m.json", "grep ERROR app.log > errors.txt", "grep:"),
        lacks=("request:",),
    ),
    "token_in_clear": Case(
        "curl -s -H 'Authorization: Bearer sk-1234567890abcdef' https://hub.example/v1/models\n",
        has=("Bearer ${{ secrets.API_TOKEN }}", "name: API_TOKEN"),
        lacks=("sk-1234567890abcdef",),
        warns=("secret-in-clear",),
    ),
    "many_boxes": Case(
        "for h in a b c; do ssh $h 'pkill -9 python'; done\necho done > /tmp/x\n",
        has=("here: local", "for h in a b c; do ssh $h 'pkill -9 python'; done"),
        lacks=("kill:", "gpu:"),
    ),
    "folder_of_a_box": Case(
        "ssh box 'cd /opt/app; export A=1; PORT=9; ls > list'\npwd > here.txt\nssh box 'echo $PORT $A; pwd > there.txt'\n",
        has=("cwd: /opt/app", "run: pwd > here.txt", "pwd > there.txt"),
        lacks=("PORT=${{",),
        warns=("from-outside",),
    ),
    "empty": Case("", has=("does nothing",)),
    "comments_only": Case("#!/bin/sh\n# nothing yet\n", has=("does nothing",)),
    "blank_comments": Case("#\n# a\n#\nls\n#\npwd\n", has=("# a\n", "\n      ls\n      #\n      pwd")),
    "crlf": Case("export A=1\r\ncat > /tmp/x <<EOF\r\nhi\r\nEOF\r\n", has=("cat > /tmp/x <<EOF",), warns=("crlf",)),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_it_is_lost(name):
    case = CASES[name]
    found = translated(case.script)
    text = write(found, "x", "#")
    missing = [one for one in case.has if one not in text]
    extra = [one for one in case.lacks if one in text]
    unsaid = set(case.warns) - {one.code for one in found.traps}
    assert not (missing or extra or unsaid), f"missing {missing}\nextra {extra}\nunsaid {unsaid}\n{text}"
