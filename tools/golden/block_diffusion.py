"""Block diffusion, written plainly: masked (SDAR, arXiv 2510.06303; LLaDA 2.0) and on a canvas (transformers' DiffusionGemma).

The reference of the engine's loop. Owns the block mask, the loops, and the noise of draws. It knows no model: it is
given functions that compute logits. It shares no code with the engine, whose noise is base/noise.h: Philox4x32-10 on
(position, token / 4, stream, choice) and Gumbel noise -log(-log(1 - u)), here in float64.
"""

import dataclasses

import numpy as np

STREAM_DENOISE = 0x10000  # of step 0; base/noise.h
STREAM_CANVAS = 0x20000


@dataclasses.dataclass
class Request:
    prompt: list
    n_tokens: int
    threshold: float
    temperature: float = 0.0
    seed: int = 0
    edit_threshold: float | None = None
    shift: bool = False  # the logits of a position are for the next one


@dataclasses.dataclass
class Answer:
    tokens: list
    passes: list  # of each block
    margin: float  # how far the nearest decision was from another one


def block_mask(n, block):
    """[n, n]: whether the row's token sees the column's."""
    of = np.arange(n) // block
    return of[None, :] <= of[:, None]


def random_words(seed, position, stream, n_vocab):
    """32 random bits for every token, choice 0."""
    words = np.zeros((4, (n_vocab + 3) // 4), dtype=np.uint64)
    words[0], words[1], words[2] = position, np.arange(words.shape[1]), stream
    low, high = seed & 0xFFFFFFFF, seed >> 32
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        x, z = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = np.stack(
            [
                (z >> np.uint64(32)) ^ words[1] ^ np.uint64(low),
                z & mask,
                (x >> np.uint64(32)) ^ words[3] ^ np.uint64(high),
                x & mask,
            ]
        )
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return words.T.reshape(-1)[:n_vocab]


def gumbel(seed, position, stream, n_vocab):
    u = (random_words(seed, position, stream, n_vocab).astype(np.float64) + 0.5) / 2.0**32
    return -np.log(-np.log1p(-u))


def denoise_step(request, tokens, first, n_given, logits, mask_token, step):
    """The block after a step that gave logits [block, vocab], the margin, and whether a settled token changed."""
    logits = np.array(logits, dtype=np.float64)
    logits[:, mask_token] = -np.inf
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    margin, guesses, edited = np.inf, {}, list(tokens)
    for place in range(n_given, len(tokens)):
        is_open = tokens[place] == mask_token
        if not is_open and request.edit_threshold is None:
            continue
        scores = logits[place]
        if is_open and request.temperature > 0:
            noise = gumbel(request.seed, first + place, STREAM_DENOISE + step, len(scores))
            scores = scores / request.temperature + noise
        token = int(scores.argmax())
        best = np.sort(scores)[-2:]
        margin = min(margin, best[1] - best[0])
        if is_open:
            guesses[place] = (token, shares[place, token])
        else:
            margin = min(margin, abs(shares[place, token] - request.edit_threshold))
            if token != tokens[place] and shares[place, token] > request.edit_threshold:
                edited[place] = token
    changed = edited != list(tokens)
    margin = min([margin] + [abs(p - request.threshold) for _, p in guesses.values()])
    settling = [place for place, (_, p) in guesses.items() if p > request.threshold]
    if guesses and not settling:
        ranked = sorted(guesses, key=lambda place: -guesses[place][1])
        settling = ranked[:1]
        if len(ranked) > 1:
            margin = min(margin, guesses[ranked[0]][1] - guesses[ranked[1]][1])
    for place in settling:
        edited[place] = guesses[place][0]
    return edited, margin, changed


def generate(request, block, mask_token, open_block):
    """open_block(settled, shift) returns a function from a block's tokens to the logits for them, [block, vocab]."""
    settled = list(request.prompt)
    end = len(settled) + request.n_tokens
    passes, margin = [], np.inf
    while len(settled) < end:
        first = len(settled) // block * block
        given = settled[first:]
        tokens = given + [mask_token] * (block - len(given))
        logits_of = open_block(settled[:first], request.shift)
        steps, n_edits = 0, 0
        while True:
            was_full = mask_token not in tokens[len(given) :]
            tokens, near, changed = denoise_step(
                request, tokens, first, len(given), logits_of(tokens), mask_token, steps
            )
            margin = min(margin, near)
            steps += 1
            n_edits += was_full
            is_full = mask_token not in tokens[len(given) :]
            if is_full if request.edit_threshold is None else was_full and (not changed or n_edits == 16):
                break
        passes.append(steps)
        settled = settled[:first] + tokens
    return Answer(settled[len(request.prompt) : end], passes, float(margin))


@dataclasses.dataclass
class CanvasRule:
    steps: int
    temperature_low: float
    temperature_high: float
    entropy_bound: float
    confident_entropy: float
    stable_steps: int


def random_canvas(request, first, length, step, n_vocab):
    stream = STREAM_CANVAS + step
    words = [int(random_words(request.seed, first + i, stream, 4)[0]) for i in range(length)]
    return [word * n_vocab >> 32 for word in words]


def denoise_canvas(request, rule, first, length, n_vocab, logits_of):
    """The settled canvas, the steps that it took, and the margin. logits_of(canvas, processed logits or None)."""
    canvas = random_canvas(request, first, length, 0, n_vocab)
    processed, history, margin = None, [], np.inf
    for step in range(rule.steps):
        logits = np.array(logits_of(canvas, processed), dtype=np.float64)
        share = (rule.steps - step) / rule.steps
        temperature = rule.temperature_low + (rule.temperature_high - rule.temperature_low) * share
        temperature *= request.temperature or 1.0
        processed = logits / temperature
        likeliest = processed.argmax(1).tolist()
        scores = processed
        if request.temperature > 0:
            scores = scores + [gumbel(request.seed, first + i, STREAM_DENOISE + step, n_vocab) for i in range(length)]
        drawn = scores.argmax(1).tolist()
        best = np.sort(scores, 1)[:, -2:]
        margin = min(margin, (best[:, 1] - best[:, 0]).min())
        shares = np.exp(processed - processed.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        entropy = -(shares * np.log(np.maximum(shares, 1e-300))).sum(1)
        stable = len(history) >= rule.stable_steps and all(
            old == likeliest for old in history[len(history) - rule.stable_steps :]
        )
        history.append(likeliest)
        margin = min(margin, abs(entropy.mean() - rule.confident_entropy))
        if (stable and entropy.mean() < rule.confident_entropy) or step + 1 == rule.steps:
            return likeliest, step + 1, margin
        order = np.argsort(entropy, kind="stable")
        before = np.cumsum(entropy[order]) - entropy[order]
        margin = min(margin, abs(before - rule.entropy_bound).min())
        accepted = {int(place) for place in order[before <= rule.entropy_bound]}
        fresh = random_canvas(request, first, length, step + 1, n_vocab)
        canvas = [drawn[i] if i in accepted else fresh[i] for i in range(length)]


def generate_canvas(request, rule, length, n_vocab, open_canvas):
    """open_canvas(settled) encodes the tokens and returns logits_of for the canvas behind them."""
    settled = list(request.prompt)
    end = len(settled) + request.n_tokens
    passes, margin = [], np.inf
    while len(settled) < end:
        logits_of = open_canvas(settled)
        canvas, steps, near = denoise_canvas(request, rule, len(settled), length, n_vocab, logits_of)
        passes.append(steps)
        margin = min(margin, near)
        settled += canvas
    return Answer(settled[len(request.prompt) : end], passes, float(margin))
