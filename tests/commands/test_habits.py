"""What people type for an option leads them to ours."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import typer.main

from pe_cli.catalogue import CATALOGUE
from pe_cli.cli import app, run
from pe_cli.commands.habits import SYNONYMS, meant


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("gen rope --theta 1e6", "--base"),
        ("gen rope --rope-theta=1e6", "--base"),
        ("gen rope --rope_base 1e6", "--base"),
        ("gen rope --head-dim 128", "--dim"),
        ("gen rope --hidden-size 128", "--dim"),
        ("gen rope --max-len 8", "--len"),
        ("gen rope --length 8", "--len"),
        ("gen rope --seq 8", "--len"),
        ("gen rope --num-positions 8", "--len"),
        ("gen rope --out x.npy", "--output"),
        ("gen rope --output-file x.npy", "--output"),
        ("gen rope --seq_len 8 --original_len 4", "--seq-len"),
        ("gen alibi --num-heads 8", "--heads"),
        ("gen alibi --n-heads 8", "--heads"),
        ("gen timestep --theta 1e4", "--max-period"),
        ("gen rope --bsae 8", "--base"),
        ("extend t.npy --max-length 8", "--len"),
        ("diff a b --tolerance 1", "--atol"),
    ],
)
def test_another_word_leads_to_the_option(line, option, capsys):
    assert run(line.split()) == 2
    said = capsys.readouterr().err
    assert f"(did you mean {option}?)" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("line", ["gen rope --num-heads 8", "gen rope --xyzzy", "gen shaw --theta 1"])
def test_an_option_that_the_command_has_not_is_not_offered(line, capsys):
    assert run(line.split()) == 2
    assert "did you mean" not in capsys.readouterr().err


def options(command, context):
    return {option for p in command.get_params(context) for option in (*p.opts, *p.secondary_opts)}


def test_the_words_lead_to_options_that_there_are():
    root = typer.main.get_command(app)
    context = typer.Context(root)
    known = set()
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        for below in command.list_commands(context) if name == "gen" else ():
            known |= options(command.get_command(context, below), context)
        known |= options(command, context)
    assert set(SYNONYMS) <= known
    for option, words in SYNONYMS.items():
        assert option.lstrip("-") not in words
        assert all(meant(word, [option]) == option for word in words)


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("rope --len 4 --dim 8", "pe gen rope --len 4 --dim 8"),
        ("generate rope --len 4", "pe gen rope --len 4"),
        ("compare a.npy b.npy", "pe diff a.npy b.npy"),
        ("gen llama-3.1 --len 4", "pe gen model llama-3.1 --len 4"),
        ("gen yarn --len 4 --dim 8", "pe gen rope --scaling yarn --len 4 --dim 8"),
        ("gen whisper --len 4", "pe gen sinusoidal --style whisper --len 4"),
        ("gen flux --grid 4x4", "pe gen rope --axis-style flux --grid 4x4"),
        ("gen sin --len 4", "pe gen sinusoidal --len 4"),
        ("gen rwpe g.tsv --steps 4", "pe gen random-walk g.tsv --steps 4"),
        ("gen bert --len 4", "pe gen learned --len 4"),
        ("gen rope 4096 128 -o x.npz", "pe gen rope --len 4096 --dim 128 -o x.npz"),
        ("gen rope --len 4k --dim 8", "--len 4096"),
        ("gen rope --len 1e6 --dim 8", "--len 1000000"),
        ("gen rope --len 4 --dim 8 --factor 8", "--scaling, one of linear"),
        ("gen rope --dim 8 --positions ids.npy", "@ids.npy"),
        ("gen alibi --n-heads 4 --max-len 8", "pe gen alibi --heads 4 --len 8"),
        ("gen t5 --len 4 --heads 8", "--table gives it"),
        ("gen sinusoidal --style bert --len 4 --dim 8", "pe gen learned"),
    ],
)
def test_one_line_says_what_to_type(line: str, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    said = capsys.readouterr().err
    assert typed in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("gen rope -f --len 4 --dim 8", "--force"),
        ("gen xyzzy", "did you mean"),
        ("gen sin --len 4", "swin"),
        ("gen nope", "learned"),
        ("gen t5 --len 4 --no_bidirectional", "did you mean"),
        ("gen LlamaRotaryEmbedding --len 4 --dim 8", "--layout"),
        ("extend x.npy --len 2x", "--len 2 "),
        ("gen model qwen2-57b-a14b --len 4", "qwen2.5"),
    ],
)
def test_a_suggestion_is_not_worse_than_none(
    line: str, never: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert never not in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "gen RoPE --len 4 --dim 8 --dtype BF16",
        "gen rope --len 4 --dim 8 --dtype fp16 --layout HuggingFace",
        "gen rope --axes 16,24,24 --grid 2x3x4",
        "gen rope --axes 16x24x24 --grid 2,3,4",
        "gen Swin --window 7,7",
        "gen ALiBi --heads 4 --len 8 --form KEY",
        "gen transformer_xl --len 4 --dim 8",
        "gen rope --len 4_096 --dim 8 --dtype torch.bfloat16",
        "gen rope --len=4 --dim=8 --base=1e4 --dtype e4m3",
    ],
)
def test_what_is_meant_is_understood(line: str, tmp_path: Path) -> None:
    assert run([*line.split(), "-q", "-o", str(tmp_path / "x.safetensors")]) == 0


@pytest.mark.parametrize("line", ["gen --list --jsn", "gen model --list --nonsense", "gen --list rope bogus"])
def test_a_list_takes_nothing_that_it_does_not_know(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert "take --json, and nothing else" in capsys.readouterr().err


def test_lists_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gen", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["encodings"]
    assert [one["name"] for one in listed] == list(CATALOGUE)
    assert run(["gen", "model", "--list", "--json"]) == 0
    assert "llama-3.1" in {one["name"] for one in json.loads(capsys.readouterr().out)["presets"]}
    assert run(["-V"]) == 0
    assert capsys.readouterr().out.startswith("pe ")
    for words in (
        ["help", "rope"],
        ["help", "gen", "rope"],
        ["--help", "gen", "rope"],
        ["gen", "--help", "rope"],
        ["-h", "rope"],
    ):
        assert run(words) == 0
        assert "pe gen rope" in capsys.readouterr().out


FIFTY = """
gen rope --theta 500000 --len 8 --dim 8                  => pe gen rope --base 500000 --len 8 --dim 8
gen rope --rope_theta 1e6 --len 8 --dim 8                => pe gen rope --base 1e6 --len 8 --dim 8
gen rope --d_model 64 --len 8                            => pe gen rope --dim 64 --len 8
gen rope --head-dim=64 --max-len=8                       => pe gen rope --dim=64 --len=8
gen rope --max_position_embeddings 8 --dim 8             => pe gen rope --len 8 --dim 8
gen rope --seq-length 8 --dim 8                          => pe gen rope --len 8 --dim 8
gen rope -n 8 -d 8                                       => pe gen rope --len 8 --dim 8
gen rope -l 8 --dim 8                                    => pe gen rope --len 8 --dim 8
gen rope 4096 128                                        => pe gen rope --len 4096 --dim 128
gen rope len=4096 dim=128                                => pe gen rope --len=4096 --dim=128
gen rope --len 4,096 --dim 8                             => --len 4096
gen rope --len 128k --dim 8                              => --len 131072 or --len 128000
gen rope --len 4096.0 --dim 8                            => --len 4096
gen rope --len many --dim 8                              => a whole number is needed
gen rope --len 8                                         => Give --dim N
gen rope --dim 128                                       => Give --len N
gen rope --n-heads 8 --len 8 --dim 8                     => the same for all heads
gen rope --len 8 --dim 8 --bf16                          => --len 8 --dim 8 --dtype bfloat16
gen rope --len 8 --dim 8 --fp16                          => --dtype float16
gen rope --len 8 --dim 8 --interleaved                   => --layout interleaved
gen rope --len 8 --dim 8 --neox                          => --layout neox
gen rope --len 8 --dim 8 --yarn                          => --scaling yarn
gen rope --len 8 --dim 8 --scaling linear --scale 4      => --scaling linear --factor 4
gen rope --len 8 --dim 8 --factor 4                      => --scaling
gen rope --len 8 --dim 8 --device cuda                   => on the CPU
gen rope --len 8 --dim 8 --batch-size 4                  => every sequence of a batch
gen rope --len 8 --dim 8 -v                              => --json says all of it
gen rope --len 8 --dim 8 x.npy                           => pe gen rope --len 8 --dim 8 -o x.npy
gen rope --dim 8 --positions 0..7                        => --positions 0:8
gen rope --dim 8 --positions [0,1,2]                     => --positions 0,1,2
gen rope --dim 8 --positions range(8)                    => --positions 0:8
gen rope --dim 8 --positions ids.npy                     => @ids.npy
gen rope --len 8 --dim 8 --dtype int8                    => known: float64, float32
gen rope --len 8 --dim 8 --layout interleave             => 'interleaved'
gen rope --len 8 --dim 8 --plot                          => --plot
rope --theta 1e6 --len 8                                 => pe gen rope --base 1e6 --len 8
gen sinusoid --len 8 --dim 8                             => pe gen sinusoidal --len 8 --dim 8
gen sinusoidal --len 8 --d-model 8                       => pe gen sinusoidal --len 8 --dim 8
gen sincos2d --grid 4x4 --dim 8                          => pe gen sinusoidal --style mae --grid 4x4 --dim 8
gen rotary --len 8 --dim 8                               => pe gen rope --len 8 --dim 8
gen m-rope --dim 128 --len 8                             => pe gen rope --sections 16,24,24
gen alibi --n-heads 8 --len 8                            => pe gen alibi --heads 8 --len 8
gen alibi --len 8                                        => pe gen alibi --heads 12
gen bloom --num_heads 8 --len 8                          => pe gen alibi --heads 8 --len 8
gen t5 --len 8 --num-heads 8                             => --table gives it
gen swin --window-size 7x7                               => pe gen swin --window 7x7
gen laplacian                                            => pe gen laplacian graph.tsv
gen random-walk g.tsv --walk-length 16                   => pe gen random-walk g.tsv --steps 16
gen timestep --timesteps 10 --dim 8                      => pe gen timestep --len 10 --dim 8
gen llama-3.1-8b --len 8                                 => pe gen model llama-3.1 --len 8
gen meta-llama/Llama-3.1-8B --len 8                      => pe gen model llama-3.1 --len 8
gen llama --len 8                                        => pe gen model llama-3.1 --len 8
gen model llama3.1 --len 8                               => llama-3.1
gen model                                                => pe gen model llama-3.1
gen xyz                                                  => pe gen --list
gen list                                                 => pe gen --list
gen --encodings                                          => pe gen --list
gen help rope                                            => pe help gen rope
version                                                  => pe --version
plot x.npy                                               => pe inspect x.npy --plot table.png
inspct x.npy                                             => pe inspect x.npy
inspect --file x.npy                                     => pe inspect x.npy
inspect x.npy y.npy                                      => pe diff x.npy y.npy
extend x.npy 16                                          => pe extend --len 16 x.npy
extend x.npy --to 16                                     => pe extend x.npy --len 16
extend x.npy --len 16 --mode nearest                     => --method nearest
extend x.npy --len 16 --align-corners                    => --anchor ends
extend x.npy y.npy --len 16                              => pe extend x.npy --len 16 -o y.npy
resize x.npy --len 16                                    => pe extend x.npy --len 16
diff x.npy                                               => pe diff mine.npy theirs.npy
diff x.npy y.npy --tol 1e-3                              => --atol 1e-3
diff x.npy y.npy --atol 1e-3x                            => a number is needed
compare x.npy y.npy                                      => pe diff x.npy y.npy
gen rope --len 4096 8192 --dim 8                         => --len 4096 8192: one value is taken
gen rope --len 2**12 --dim 8                             => --len 4096
gen rope --len 1M --dim 8                                => --len 1048576 or --len 1000000
gen rope --base 500k --len 8 --dim 8                     => --base 512000 or --base 500000
gen rope --base 10,000 --len 8 --dim 8                   => --base 10000
gen rope --scaling linear --factor 8x --len 8 --dim 8    => --factor 8
gen rope --len8 --dim8                                   => pe gen rope --len 8 --dim 8
gen rope –len 8 –dim 8                                   => pe gen rope --len 8 --dim 8
gen rope --seqlen 8 --dim 8                              => pe gen rope --len 8 --dim 8
gen rope --max_seq_len_cached 8 --dim 8                  => pe gen rope --len 8 --dim 8
gen rope --len 8 --dim 8 --offset 5                      => --positions START:STOP
gen rope --len 8 --dim 8 --json true                     => --json takes no value
gen rope --len 8 --dim 8 --dtype float                   => torch means float32 by it, numpy float64
gen rope --positions 0 5 7 --dim 8                       => pe gen rope --positions 0,5,7 --dim 8
gen rope --positions np.arange(0,8,2) --dim 8            => --positions 0:8:2
gen rope --sections 16 24 24 --dim 128 --len 8           => --sections 16,24,24
gen rope --sections [16,24,24] --dim 128 --len 8         => --sections 16,24,24
gen sinusoidal --style mae --grid 4 6 --dim 8            => --grid 4x6
gen sinusoidal --style mae --grid (4,6) --dim 8          => 4x6
gen rope+yarn --len 8 --dim 8                            => pe gen rope --scaling yarn --len 8 --dim 8
gen LlamaRotaryEmbedding --len 8 --dim 8                 => pe gen rope --len 8 --dim 8
gen T5RelativePositionBias --len 8                       => pe gen t5 --len 8
gen get_2d_sincos_pos_embed --grid 4x4 --dim 8           => pe gen sinusoidal --style mae --grid 4x4
gen precompute_freqs_cis --len 8 --dim 8                 => pe gen rope --len 8 --dim 8
gen nn.Embedding --len 8 --dim 8                         => pe gen learned --len 8 --dim 8
gen positional_encoding --len 8 --dim 8                  => pe gen sinusoidal --len 8 --dim 8
gen ropes --len 8 --dim 8                                => pe gen rope --len 8 --dim 8
gen random_walks g.tsv                                   => pe gen random-walk g.tsv
gen laplacian g.tsv --num_eigs 4                         => pe gen laplacian g.tsv --k 4
gen alibi --n_head 8 --seq_len 8 --is_causal             => pe gen alibi --heads 8 --len 8 --causal
gen nope                                                 => has no table
gen --len 4 --dim 8 rope                                 => pe gen rope --len 4 --dim 8
--json inspect x.npy                                     => pe inspect --json x.npy
-q gen rope --len 4                                      => pe gen rope -q --len 4
-v                                                       => -V is the version
rope --help                                              => pe gen rope --help
convert x.npy y.safetensors                              => pe gen NAME -o FILE
gen model llama3.1-8b --len 8                            => llama-3.1
gen model https://huggingface.co/gpt2 --len 8            => pe downloads nothing
extend x.npy --len 2x                                    => a whole number is needed
"""


@pytest.mark.parametrize("line", FIFTY.strip().splitlines(), ids=lambda line: line.split("=>")[0].strip())
def test_a_mistyped_line_is_answered_by_one_that_mends_it(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    typed, _, mended = line.rpartition(" => ")
    assert run(typed.split()) == 2
    said = capsys.readouterr().err
    assert mended.strip() in said
    assert said.count("\n") == 1


WORDS = """
--len --dim= --len=4 -o 4 4k 128 x.npy -- - --- —len –dim -l --no-x --no-bias --base 1e5 gen rope t5 model inspect diff
--json -q --plot --help=1 = len=8 a= ' " --theta --d_model 1,2 [1,2] None --heads -1 --grid 4x4 @x --rope-theta=1 -k *
"""


def test_whatever_is_typed_is_answered_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["", "a b", "  ", "\n", "\u202e", "--len 4", *WORDS.split()]
    heads = (
        ["gen"],
        ["gen", "rope"],
        ["gen", "model"],
        ["gen", "axial"],
        ["inspect"],
        ["extend"],
        ["diff"],
        [],
    )
    for seed in range(400):
        draw = Random(seed)
        line = [*draw.choice(heads), *draw.choices(words, k=draw.randrange(5))]
        code, said = run(line), capsys.readouterr().err
        if code == 2:
            assert said.count("\n") == 1, line
            assert "unexpected" not in said or "argument" in said, line


@pytest.mark.parametrize("word", ["", "a b"])
def test_an_empty_word_and_one_with_a_space_are_refused(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gen", "rope", "--len", "4", word]) == 2
    assert capsys.readouterr().err.count("\n") == 1
