# bash completion for pe; made by tools/make_completions.py
_pe() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" flags="" files=0 i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path" in
            ""|gen)
                [[ "${COMP_WORDS[i]}" != -* ]] && path="${path:+$path }${COMP_WORDS[i]}" ;;
        esac
    done
    if [[ "$current" == "=" ]]; then  # readline cuts --layout=half into three words
        current=""
    elif [[ "$previous" == "=" ]]; then
        previous="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    COMPREPLY=()
    case "$path" in
        "")
            case "$previous" in
            esac
            words="gen inspect extend diff"; flags="-V --version --help"; files=0 ;;
        "gen")
            case "$previous" in
            esac
            words="sinusoidal fourier timestep learned t5 transformer-xl shaw alibi kerple sandwich fire swin rope xpos deberta tupe cope fox peg global-tokens tree dependency laplacian random-walk rrwp heat-kernel shortest-path resistance-distance eigenspaces svd electrostatic degree cycles dag magnetic axial sparse-transformer position-ids model"; flags="--help"; files=0 ;;
        "gen sinusoidal")
            case "$previous" in
                --dim) return ;;
                --style) COMPREPLY=($(compgen -W "paper paper-cat t2t t2t-cossin diffusion fairseq mae dit canonical moco timm detr deformable-detr tatp22 cogvideox vaswani xlm distilbert flaubert opennmt espnet videomae florence2 speecht5 marian ctrl gptj codegen pegasus roformer informer autoformer time-series-transformer xlnet tensor2tensor whisper pegasus-x timesfm ddpm musicgen musicgen-melody m2m100 nllb-moe xglm fsmt speech2text sd3 pixart rt-detr d-fine deim moco-v3 omdet-turbo conditional-detr maskformer mask2former table-transformer positional-encodings" -- "$current")); return ;;
                --base) return ;;
                --padding-idx) return ;;
                --grid) return ;;
                --base-size) return ;;
                --interpolation-scale) return ;;
                --compute) COMPREPLY=($(compgen -W "exact float32" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--dim --style --base --padding-idx --grid --normalize --no-normalize --base-size --interpolation-scale --compute --dtype --len --positions --shard --prefix-rows --workers --dask --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen fourier")
            case "$previous" in
                --style) COMPREPLY=($(compgen -W "nerf perceiver gaussian" -- "$current")); return ;;
                --num-bands) return ;;
                --max-resolution) return ;;
                --scale) return ;;
                --seed) return ;;
                --matrix) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --grid) return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--style --num-bands --include-input --no-include-input --pi --no-pi --log-sampling --no-log-sampling --max-resolution --scale --seed --matrix --sin-first --no-sin-first --grid --len --positions --shard --prefix-rows --workers --dask --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen timestep")
            case "$previous" in
                --dim) return ;;
                --downscale-freq-shift) return ;;
                --scale) return ;;
                --max-period) return ;;
                --compute) COMPREPLY=($(compgen -W "exact float32" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--dim --flip-sin-to-cos --no-flip-sin-to-cos --downscale-freq-shift --scale --max-period --compute --dtype --len --positions --shard --prefix-rows --workers --dask --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen learned")
            case "$previous" in
                --dim) return ;;
                --init) COMPREPLY=($(compgen -W "normal truncated-normal uniform zeros sinusoidal" -- "$current")); return ;;
                --std) return ;;
                --cut) return ;;
                --seed) return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--dim --init --std --cut --seed --len --positions --shard --prefix-rows --workers --dask --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen t5")
            case "$previous" in
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --num-buckets) return ;;
                --max-distance) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--table --num-buckets --max-distance --bidirectional --causal --heads-first --no-heads-first --dtype --len --q-len --k-len --positions --shard --distances --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen transformer-xl")
            case "$previous" in
                --dim) return ;;
                --style) COMPREPLY=($(compgen -W "paper-cat paper xlnet transformer-xl conformer espnet wav2vec2-conformer" -- "$current")); return ;;
                --clamp-len) return ;;
                --base) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--dim --style --bidirectional --causal --clamp-len --base --dtype --len --positions --shard --prefix-rows --workers --dask --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen shaw")
            case "$previous" in
                --max-distance) return ;;
                --max-right) return ;;
                --numbering) COMPREPLY=($(compgen -W "shaw reversed speecht5 etc bert wav2vec2-bert seamless-m4t-v2" -- "$current")); return ;;
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--max-distance --max-right --numbering --table --dtype --len --q-len --k-len --positions --shard --distances --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen alibi")
            case "$previous" in
                --heads) return ;;
                --form) COMPREPLY=($(compgen -W "matrix key mpt slopes" -- "$current")); return ;;
                --bias-max) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--heads --form --bidirectional --causal --bias-max --dtype --len --q-len --k-len --positions --shard --distances --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen kerple")
            case "$previous" in
                --heads) return ;;
                --kernel) COMPREPLY=($(compgen -W "log power" -- "$current")); return ;;
                --bias-p) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --bias-a) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --seed) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--heads --kernel --bias-p --bias-a --bidirectional --causal --seed --dtype --len --q-len --k-len --positions --shard --distances --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen sandwich")
            case "$previous" in
                --heads) return ;;
                --dim) return ;;
                --first-index) return ;;
                --base) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--heads --dim --first-index --center --no-center --base --dtype --len --q-len --k-len --positions --shard --distances --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen fire")
            case "$previous" in
                --heads) return ;;
                --hidden-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --hidden-bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --output-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --output-bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                -c|--c) return ;;
                --threshold) return ;;
                --eps) return ;;
                --width) return ;;
                --seed) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--heads --hidden-weight --hidden-bias --output-weight --output-bias -c --c --threshold --eps --width --bidirectional --causal --seed --dtype --len --q-len --k-len --positions --shard --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen swin")
            case "$previous" in
                --window) return ;;
                --version) COMPREPLY=($(compgen -W "1 2 v1 v2" -- "$current")); return ;;
                --pretrained-window) return ;;
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --mlp-hidden-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --mlp-hidden-bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --mlp-output-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--window --version --pretrained-window --class-token --no-class-token --table --mlp-hidden-weight --mlp-hidden-bias --mlp-output-weight --heads-first --no-heads-first --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen rope")
            case "$previous" in
                --preset) COMPREPLY=($(compgen -W "llama-2 llama-2-7b-32k codellama-7b llama-3 llama-3.1 llama-3.2-1b llama-3.2-3b llama-3.3 llama-4-scout llama-4-maverick mistral-7b-v0.1 mistral-7b-v0.3 mixtral-8x7b mixtral-8x22b ministral-3-3b qwen2-7b qwen2.5-7b qwen2.5-7b-yarn qwen2.5-7b-1m qwen2.5-math-7b qwen3 qwen3-yarn qwen3-4b-2507 qwen3-30b-a3b-2507 qwen2.5-vl qwen3-vl-30b-a3b qwen3-next-80b qwen3.5-35b-a3b gemma-2b gemma-2-9b gemma-2-27b gemma-3-1b gemma-3-4b gemma-3-27b gemma-4 phi-1.5 phi-2 phi-3-mini-4k phi-3.5-mini phi-4-mini phi-4 deepseek-v2-lite deepseek-v3 kimi-k2 gpt-oss gpt-j-6b gpt-neox-20b pythia-1.4b pythia-2.8b stablelm-3b-4e1t stablelm-2-1.6b glm-4-9b-chat glm-4-9b-chat-1m command-r-v01 command-r-08-2024 command-r-plus smollm2-135m smollm2-1.7b smollm3-3b yi-6b olmo-2-7b falcon-7b falcon3-7b internlm2.5-7b minicpm-2b-128k starcoder2-15b minimax-m2 modernbert-base" -- "$current")); return ;;
                --dim) return ;;
                --base) return ;;
                --layout) COMPREPLY=($(compgen -W "interleaved half adjacent split cos-sin sin-cos sin-cos-adjacent complex inv-freq ggml-factors mlx-freqs neox hf huggingface transformers gpt-neox gpt-j diffusers onnxruntime flash-attention flash-attn sglang flashinfer tensorrt tensorrt-llm trt trt-llm llama llama.cpp gptj onnx vllm trt-pairs trt-sinusoidal timm meta ggml mlx" -- "$current")); return ;;
                --scaling) COMPREPLY=($(compgen -W "none linear ntk ntk-fixed ntk-mixed dynamic-ntk ntk-by-parts yarn longrope llama3 proportional default pi ntk-aware ntk-alpha dynamic part-ntk su p-rope" -- "$current")); return ;;
                --factor) return ;;
                --original-len) return ;;
                --seq-len) return ;;
                --beta-fast) return ;;
                --beta-slow) return ;;
                --mscale) return ;;
                --mscale-all-dim) return ;;
                --attention-factor) return ;;
                --low-freq-factor) return ;;
                --high-freq-factor) return ;;
                --short-factor) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --long-factor) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --policy) COMPREPLY=($(compgen -W "by-length short long" -- "$current")); return ;;
                --mixed-b) return ;;
                --partial) return ;;
                --sections) return ;;
                --axes) return ;;
                --axis-style) COMPREPLY=($(compgen -W "qwen-vision step3-vision inkling-vision muse-vision kimi-vision loftr pixtral gemma4-vision sam eva02 pe-vision dinov3 llama4-vision vjepa2 flux wan cogvideox hunyuan-video qwen-image ltx ernie-vl qwen2-vl qwen3-vl glm-v kimi mistral3 gemma4 sam2 sam3 eva llama4 flux1 ltx-video" -- "$current")); return ;;
                --axis-factors) return ;;
                --ref-grid) return ;;
                --grid) return ;;
                --compute) COMPREPLY=($(compgen -W "exact float32" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--preset --dim --base --layout --scaling --factor --original-len --seq-len --beta-fast --beta-slow --truncate --no-truncate --mscale --mscale-all-dim --attention-factor --low-freq-factor --high-freq-factor --short-factor --long-factor --policy --mixed-b --partial --sections --interleave-sections --no-interleave-sections --axes --axis-style --axis-factors --ref-grid --grid --compute --dtype --len --positions --shard --prefix-rows --workers --dask --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen xpos")
            case "$previous" in
                --dim) return ;;
                --base) return ;;
                --scale-base) return ;;
                --gamma) return ;;
                --seq-len) return ;;
                --layout) COMPREPLY=($(compgen -W "interleaved half adjacent split cos-sin sin-cos sin-cos-adjacent complex inv-freq ggml-factors mlx-freqs neox hf huggingface transformers gpt-neox gpt-j diffusers onnxruntime flash-attention flash-attn sglang flashinfer tensorrt tensorrt-llm trt trt-llm llama llama.cpp gptj onnx vllm trt-pairs trt-sinusoidal timm meta ggml mlx" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--dim --base --scale-base --gamma --seq-len --layout --dtype --len --positions --shard --prefix-rows --workers --dask --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen deberta")
            case "$previous" in
                --position-buckets) return ;;
                --max-relative-positions) return ;;
                --convention) COMPREPLY=($(compgen -W "transformers original" -- "$current")); return ;;
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--position-buckets --max-relative-positions --convention --table --dtype --len --q-len --k-len --positions --shard --distances --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen tupe")
            case "$previous" in
                --heads) return ;;
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --query-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --key-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --query-bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --key-bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --norm-weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --norm-bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --relative-table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --num-buckets) return ;;
                --max-distance) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--heads --table --query-weight --key-weight --query-bias --key-bias --norm-weight --norm-bias --relative-table --num-buckets --max-distance --untie-cls --no-untie-cls --heads-first --no-heads-first --dtype --len --q-len --k-len --positions --shard --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen cope")
            case "$previous" in
                --query) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --key) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --logits) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --max-position) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--query --key --logits --table --max-position --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen fox")
            case "$previous" in
                --log-gates) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--log-gates --gate-logits --no-gate-logits --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen peg")
            case "$previous" in
                --hidden) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --grid) return ;;
                --weight) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --bias) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --prefix-tokens) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--hidden --grid --weight --bias --prefix-tokens --add --no-add --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen global-tokens")
            case "$previous" in
                --len) return ;;
                --scheme) COMPREPLY=($(compgen -W "longt5 etc" -- "$current")); return ;;
                --block) return ;;
                --num-buckets) return ;;
                --max-distance) return ;;
                --table) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--len --scheme --block --num-buckets --max-distance --bidirectional --causal --table --heads-first --no-heads-first --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen tree")
            case "$previous" in
                --scheme) COMPREPLY=($(compgen -W "stack depth sibling ancestor sibling-pairs distance up-down" -- "$current")); return ;;
                --max-depth) return ;;
                --max-width) return ;;
                -p|--p) return ;;
                --model-dim) return ;;
                --wide) COMPREPLY=($(compgen -W "clip drop binary error" -- "$current")); return ;;
                --max-distance) return ;;
                --unrelated) return ;;
                --nodes) COMPREPLY=($(compgen -W "all leaves internal" -- "$current")); return ;;
                --tree-format) COMPREPLY=($(compgen -W "auto brackets conllu json heads python" -- "$current")); return ;;
                --traces) COMPREPLY=($(compgen -W "keep drop" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--scheme --max-depth --max-width -p --p --model-dim --wide --max-distance --unrelated --nodes --pad --no-pad --tree-format --skip-bad --no-skip-bad --traces --values --no-values --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen dependency")
            case "$previous" in
                --same) COMPREPLY=($(compgen -W "edge path" -- "$current")); return ;;
                --tree-format) COMPREPLY=($(compgen -W "auto brackets conllu json heads python" -- "$current")); return ;;
                --traces) COMPREPLY=($(compgen -W "keep drop" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--same --relative --no-relative --pad --no-pad --tree-format --skip-bad --no-skip-bad --traces --values --no-values --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen laplacian")
            case "$previous" in
                -k|--k) return ;;
                --norm) COMPREPLY=($(compgen -W "sym rw none" -- "$current")); return ;;
                --drop) COMPREPLY=($(compgen -W "zeros first none" -- "$current")); return ;;
                --components) COMPREPLY=($(compgen -W "joint each" -- "$current")); return ;;
                --isolated) COMPREPLY=($(compgen -W "zero one" -- "$current")); return ;;
                --multiplet) COMPREPLY=($(compgen -W "warn extend error" -- "$current")); return ;;
                --sign) COMPREPLY=($(compgen -W "max-abs first random map oap" -- "$current")); return ;;
                --vec-norm) COMPREPLY=($(compgen -W "l2 l1 abs-max wavelength rows" -- "$current")); return ;;
                --pad) COMPREPLY=($(compgen -W "zero nan error" -- "$current")); return ;;
                --solver) COMPREPLY=($(compgen -W "auto dense lanczos shift-invert cg" -- "$current")); return ;;
                --seed) return ;;
                --preset) COMPREPLY=($(compgen -W "pyg dgl gps san" -- "$current")); return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="-k --k --norm --drop --components --isolated --multiplet --sign --vec-norm --pad --solver --seed --preset --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen random-walk")
            case "$previous" in
                --steps) return ;;
                --times) return ;;
                --ppr) return ;;
                --loops) COMPREPLY=($(compgen -W "keep drop" -- "$current")); return ;;
                --space-dim) return ;;
                --preset) COMPREPLY=($(compgen -W "pyg dgl gps" -- "$current")); return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--steps --times --ppr --loops --space-dim --preset --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen rrwp")
            case "$previous" in
                --steps) return ;;
                --ppr) return ;;
                --loops) COMPREPLY=($(compgen -W "keep drop" -- "$current")); return ;;
                --form) COMPREPLY=($(compgen -W "sparse dense" -- "$current")); return ;;
                --preset) COMPREPLY=($(compgen -W "grit" -- "$current")); return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--steps --ppr --loops --form --preset --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen heat-kernel")
            case "$previous" in
                --times) return ;;
                --norm) COMPREPLY=($(compgen -W "none sym" -- "$current")); return ;;
                --drop) COMPREPLY=($(compgen -W "zeros none" -- "$current")); return ;;
                --space-dim) return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--times --norm --drop --space-dim --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen shortest-path")
            case "$previous" in
                --limit) return ;;
                --clip) return ;;
                --offset) return ;;
                --unreachable) return ;;
                --virtual-node) return ;;
                --paths) return ;;
                --preset) COMPREPLY=($(compgen -W "graphormer dgl" -- "$current")); return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--weighted --no-weighted --limit --clip --offset --unreachable --virtual-node --degrees --no-degrees --paths --preset --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen resistance-distance")
            case "$previous" in
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--commute --no-commute --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen eigenspaces")
            case "$previous" in
                -k|--k) return ;;
                --form) COMPREPLY=($(compgen -W "diagonal pairs" -- "$current")); return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="-k --k --form --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen svd")
            case "$previous" in
                -k|--k) return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="-k --k --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen electrostatic")
            case "$previous" in
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen degree")
            case "$previous" in
                --clip) return ;;
                --offset) return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--clip --offset --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen cycles")
            case "$previous" in
                --longest) return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--longest --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen dag")
            case "$previous" in
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--reachable --no-reachable --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen magnetic")
            case "$previous" in
                -k|--k) return ;;
                --q) return ;;
                --q-mode) COMPREPLY=($(compgen -W "absolute relative" -- "$current")); return ;;
                --norm) COMPREPLY=($(compgen -W "sym none" -- "$current")); return ;;
                --convention) COMPREPLY=($(compgen -W "half unit" -- "$current")); return ;;
                --isolated) COMPREPLY=($(compgen -W "zero one" -- "$current")); return ;;
                --multiplet) COMPREPLY=($(compgen -W "warn extend error" -- "$current")); return ;;
                --pad) COMPREPLY=($(compgen -W "zero nan error" -- "$current")); return ;;
                --parts) COMPREPLY=($(compgen -W "complex split" -- "$current")); return ;;
                --solver) COMPREPLY=($(compgen -W "auto dense lanczos shift-invert cg" -- "$current")); return ;;
                --shard) return ;;
                --pad-to) return ;;
                --workers) return ;;
                --dask) return ;;
                --weights) return ;;
                --num-nodes) return ;;
                --ids) COMPREPLY=($(compgen -W "auto relabel text" -- "$current")); return ;;
                --parallel) COMPREPLY=($(compgen -W "sum first" -- "$current")); return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="-k --k --q --q-mode --norm --convention --isolated --multiplet --pad --parts --solver --shard --pad-to --workers --dask --directed --no-directed --weights --num-nodes --ids --parallel --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "gen axial")
            case "$previous" in
                --shape) return ;;
                --dims) return ;;
                --combine) COMPREPLY=($(compgen -W "concat sum" -- "$current")); return ;;
                --init) COMPREPLY=($(compgen -W "normal sinusoidal" -- "$current")); return ;;
                --std) return ;;
                --seed) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --len) return ;;
                --positions) return ;;
                --shard) return ;;
                --prefix-rows) return ;;
                --workers) return ;;
                --dask) return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--shape --dims --combine --init --std --seed --expand --no-expand --dtype --len --positions --shard --prefix-rows --workers --dask --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen sparse-transformer")
            case "$previous" in
                --len) return ;;
                --stride) return ;;
                --pattern) COMPREPLY=($(compgen -W "strided fixed" -- "$current")); return ;;
                --summary) return ;;
                --variant) COMPREPLY=($(compgen -W "paper code" -- "$current")); return ;;
                --dim) return ;;
                --seed) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--len --stride --pattern --summary --variant --dim --seed --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen position-ids")
            case "$previous" in
                --scheme) COMPREPLY=($(compgen -W "stride anchors sinks randomised pose self-extend dual-chunk lm-infinite mrope packed from-mask streaming-llm dca" -- "$current")); return ;;
                --len) return ;;
                --stride) return ;;
                --start) return ;;
                --anchors) return ;;
                --fill) COMPREPLY=($(compgen -W "left nearest none" -- "$current")); return ;;
                --sinks) return ;;
                --window) return ;;
                --max-position) return ;;
                --max-distance) return ;;
                --group) return ;;
                --seed) return ;;
                --segments) return ;;
                --merge) return ;;
                --temporal-merge) return ;;
                --time-interval) return ;;
                --after) COMPREPLY=($(compgen -W "grid largest" -- "$current")); return ;;
                --lengths) return ;;
                --mask) return ;;
                --padding-idx) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--scheme --len --stride --start --anchors --fill --sinks --window --max-position --max-distance --group --pairs --no-pairs --seed --segments --merge --temporal-merge --time-interval --after --lengths --mask --padding-idx --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=0 ;;
        "gen model")
            case "$previous" in
                --component) return ;;
                --layer-type) return ;;
                --seq-len) return ;;
                --layout) return ;;
                --compute) return ;;
                --grid) return ;;
                --row-order) COMPREPLY=($(compgen -W "model raster" -- "$current")); return ;;
                --table) COMPREPLY=($(compgen -W "encoding query-temperature rotated-layers" -- "$current")); return ;;
                --len) return ;;
                --q-len) return ;;
                --k-len) return ;;
                --positions) return ;;
                --shard) return ;;
                --distances) return ;;
                --prefix-rows) return ;;
                --dtype) COMPREPLY=($(compgen -W "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2" -- "$current")); return ;;
                --name) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--component --layer-type --seq-len --layout --truncate --no-truncate --compute --grid --row-order --table --len --q-len --k-len --positions --shard --distances --prefix-rows --dtype --name -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "inspect")
            case "$previous" in
                --tensor) return ;;
                --component) return ;;
                --layer-type) return ;;
                --seq-len) return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--tensor --values --component --layer-type --seq-len --strict --json --plot --force --help"; files=1 ;;
        "extend")
            case "$previous" in
                --len) return ;;
                --grid) return ;;
                --from-grid) return ;;
                --window) return ;;
                --from-window) return ;;
                --tensor) return ;;
                --config) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --method) COMPREPLY=($(compgen -W "linear cubic bilinear bicubic nearest repeat-last tile stretch hierarchical zeros random regenerate truncate crop knots linear-knots" -- "$current")); return ;;
                --preset) COMPREPLY=($(compgen -W "timm torch dinov2 jax torchvision swin beit long-clip longformer" -- "$current")); return ;;
                --anchor) COMPREPLY=($(compgen -W "ends half left" -- "$current")); return ;;
                --keep) return ;;
                --alpha) return ;;
                --seed) return ;;
                --prefix-rows) return ;;
                --suffix-rows) return ;;
                --offset) return ;;
                --outliers) COMPREPLY=($(compgen -W "keep ignore" -- "$current")); return ;;
                --scaling) COMPREPLY=($(compgen -W "yarn linear ntk dynamic-ntk llama3" -- "$current")); return ;;
                --factor) return ;;
                -o|--output) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
                --format) COMPREPLY=($(compgen -W "npy npz h5 safetensors csv" -- "$current")); return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--len --grid --from-grid --window --from-window --tensor --config --method --preset --anchor --antialias --no-antialias --keep --alpha --seed --prefix-rows --suffix-rows --offset --outliers --scaling --factor --force-scaling --link --dry-run -o --output --format --json --plot --force -q --quiet --help"; files=1 ;;
        "diff")
            case "$previous" in
                --tensor-a) return ;;
                --tensor-b) return ;;
                --atol) return ;;
                --rtol) return ;;
                --ulp) return ;;
                --plot) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
            esac
            words=""; flags="--tensor-a --tensor-b --atol --rtol --ulp --explain --no-explain --json --plot --force -q --quiet --help"; files=1 ;;
    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$current"))
    elif [[ -n "$words" ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    elif ((files)); then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}
complete -F _pe pe
