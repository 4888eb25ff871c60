#include "backend/cuda/program.h"

#include "backend/check_pass.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/repack.h"
#include "backend/weight_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace kapitsa::backend::cuda {
namespace {

int64_t entry_bytes(const plan::State& state) {
  return dtype_bytes(state.dtype, state.width).value_or(0);
}

// Bytes of all scales of a grouped weight, wherever they lie.
int64_t scale_bytes(const plan::Weight& weight) {
  return weight.dtype == DType::grouped
             ? weight.experts * std::ssize(plan::matrix_scales(weight, 0))
             : 0;
}

// All rows of one expert's matrix as f32, decoded on the host, with the weight's factor.
std::vector<float> decode(const plan::Weight& weight, int64_t expert) {
  std::vector<float> values(static_cast<size_t>(weight.out * weight.in));
  for (int64_t row = 0; row < weight.out; ++row)
    decode_row(weight, expert, row,
               std::span(values).subspan(static_cast<size_t>(row * weight.in),
                                         static_cast<size_t>(weight.in)));
  return values;
}

WeightView view_of(const plan::Weight& weight, const WeightPlace& place, std::byte* base) {
  const auto at = [&](int64_t offset) {
    return offset < 0 ? nullptr : reinterpret_cast<const uint8_t*>(base + offset);
  };
  WeightView view = {};
  view.data = place.format == TileFormat::none ? at(place.data) : nullptr;
  view.scales = at(place.scales);
  view.biases = at(place.biases);
  view.factor = reinterpret_cast<const float*>(at(place.factor));
  view.row_bytes = place.plain ? weight.in * 4 : plan::row_bytes(weight);
  view.matrix_bytes = view.row_bytes * weight.out;
  view.scale_row_bytes = scale_bytes(weight) / (weight.experts * weight.out);
  view.experts = weight.experts;
  view.out = weight.out;
  view.in = weight.in;
  view.dtype = place.plain ? DType::f32 : weight.dtype;
  view.scale_dtype = weight.scale_dtype;
  view.group = weight.group;
  view.n_factors = static_cast<int32_t>(weight.scale.size());
  return view;
}

TileView tiles_of(const plan::Weight& weight, const WeightPlace& place, std::byte* base) {
  TileView view = {};
  view.format = place.format;
  if (place.format == TileFormat::none) return view;
  view.data = reinterpret_cast<const uint8_t*>(base + place.data);
  if (place.factor >= 0) view.factor = reinterpret_cast<const float*>(base + place.factor);
  view.tile_bytes = tile_bytes(place.format, weight.in);
  view.matrix_bytes = view.tile_bytes * cuda::tiles_of(weight.out);
  view.experts = weight.experts;
  view.out = weight.out;
  view.in = weight.in;
  view.n_factors = static_cast<int32_t>(weight.scale.size());
  return view;
}

}  // namespace

Result<std::unique_ptr<CudaProgram>> CudaProgram::create(plan::Plan plan,
                                                         const ProgramLimits& limits,
                                                         std::vector<int32_t> row_buckets) {
  std::unique_ptr<CudaProgram> program(new CudaProgram);
  program->plan_ = std::move(plan);
  program->row_buckets_ = std::move(row_buckets);
  program->context_.plan = &program->plan_;
  program->context_.limits = limits;
  KAPITSA_ASSIGN(program->layout_, make_layout(program->plan_, limits));
  KAPITSA_ASSIGN(program->stream_, make_stream());
  program->context_.stream = program->stream_.get();
  KAPITSA_TRY(program->allocate());
  KAPITSA_TRY(program->upload_weights());
  return program;
}

CudaProgram::~CudaProgram() {
  if (stream_) cudaStreamSynchronize(stream_.get());
}

Status CudaProgram::allocate() {
  const MemoryNeed& need = layout_.need;
  KAPITSA_ASSIGN(buffer_block_, allocate_device(need.buffers, "activations"));
  KAPITSA_ASSIGN(cache_block_, allocate_device(need.kv_cache, "the KV cache"));
  KAPITSA_ASSIGN(recurrent_block_, allocate_device(need.recurrent, "recurrent states"));
  KAPITSA_ASSIGN(weight_block_, allocate_device(need.weights, "weights"));
  // Kernels may multiply an entry that nothing wrote by a weight of zero, so it must be a number.
  const auto clear = [&](const DeviceBlock& block, int64_t bytes) {
    return bytes == 0
               ? Status()
               : check(cudaMemsetAsync(block.get(), 0, static_cast<size_t>(bytes), stream_.get()),
                       "clearing memory");
  };
  KAPITSA_TRY(clear(buffer_block_, need.buffers));
  KAPITSA_TRY(clear(cache_block_, need.kv_cache));
  KAPITSA_TRY(clear(recurrent_block_, need.recurrent));
  for (const int64_t offset : layout_.buffers)
    context_.buffers.push_back(buffer_block_.get() + offset);
  context_.scratch = buffer_block_.get() + layout_.scratch;
  context_.partial = reinterpret_cast<float*>(buffer_block_.get() + layout_.partial);
  context_.experts = buffer_block_.get() + layout_.experts;
  context_.counters = reinterpret_cast<int32_t*>(buffer_block_.get() + layout_.counters);
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    const plan::State& state = plan_.states()[i];
    const bool is_cache = state.kind == plan::StateKind::kv_cache;
    std::byte* base = is_cache ? cache_block_.get() : recurrent_block_.get();
    context_.states.push_back(
        {reinterpret_cast<uint8_t*>(base + layout_.states[i]), state.dtype, state.width});
    if (state.kind == plan::StateKind::recurrent) state_bytes_ += entry_bytes(state);
  }
  for (Staged& staged : staged_) {
    KAPITSA_ASSIGN(staged.memory,
                   allocate_pinned(layout_.pass.capacity * 4, "the arrays of a pass"));
    KAPITSA_ASSIGN(staged.sent, make_event());
  }
  bind_pass();
  return {};
}

void CudaProgram::bind_pass() {
  const auto* base = reinterpret_cast<const int32_t*>(buffer_block_.get() + layout_.pass_data);
  const PassLayout& p = layout_.pass;
  context_.pass = {.counts = base,
                   .tokens = base + p.tokens,
                   .positions = base + p.positions,
                   .sequences = base + p.sequences,
                   .slots = base + p.slots,
                   .parents = base + p.parents,
                   .depth = base + p.depth,
                   .history = base + p.history,
                   .outputs = base + p.outputs,
                   .first_row = base + p.first_row,
                   .end_row = base + p.end_row,
                   .committed = base + p.committed,
                   .state_slot = base + p.state_slot,
                   .first_page = base + p.first_page,
                   .first_replay = base + p.first_replay,
                   .n_replay = base + p.n_replay,
                   .replay = base + p.lists,
                   .pages = base + p.lists,
                   .page_tokens = context_.limits.page_tokens,
                   .n_history = plan_.n_history};
}

Status CudaProgram::upload_weights() {
  KAPITSA_ASSIGN(Uploader uploader, Uploader::create(stream_.get()));
  for (size_t i = 0; i < plan_.weights().size(); ++i) {
    const plan::Weight& weight = plan_.weights()[i];
    const WeightPlace& place = layout_.weights[i];
    context_.weights.push_back(view_of(weight, place, weight_block_.get()));
    context_.tiles.push_back(tiles_of(weight, place, weight_block_.get()));
    if (place.factor >= 0)
      KAPITSA_TRY(uploader.copy(weight_block_.get() + place.factor,
                                std::as_bytes(std::span(weight.scale))));
    if (place.format != TileFormat::none) {
      KAPITSA_TRY(upload_tiles(weight, place, uploader));
      continue;
    }
    std::byte* data = weight_block_.get() + place.data;
    if (place.plain) {
      for (int64_t expert = 0; expert < weight.experts; ++expert) {
        const std::vector<float> values = decode(weight, expert);
        const auto bytes = std::as_bytes(std::span(values));
        KAPITSA_TRY(uploader.copy(data + expert * std::ssize(bytes), bytes));
      }
      continue;
    }
    for (int64_t expert = 0; expert < weight.experts; ++expert) {
      const std::span<const std::byte> matrix = plan::matrix_bytes(weight, expert);
      KAPITSA_TRY(uploader.copy(data + expert * std::ssize(matrix), matrix));
    }
    for (int64_t expert = 0; place.scales >= 0 && expert < weight.experts; ++expert) {
      const std::span<const std::byte> part = plan::matrix_scales(weight, expert);
      KAPITSA_TRY(
          uploader.copy(weight_block_.get() + place.scales + expert * std::ssize(part), part));
    }
    if (place.biases >= 0)
      KAPITSA_TRY(uploader.copy(weight_block_.get() + place.biases, weight.biases));
  }
  raw_block_.reset();
  for (size_t i = 0; i < layout_.ropes.size(); ++i) {
    const plan::Rope& rope = *layout_.ropes[i];
    std::byte* values = buffer_block_.get() + layout_.rope_values[i];
    KAPITSA_TRY(uploader.copy(values, std::as_bytes(std::span(rope.inv_freq))));
    context_.ropes.emplace_back(&rope,
                                RopeView{reinterpret_cast<const float*>(values),
                                         static_cast<int32_t>(rope.inv_freq.size()), rope.magnitude,
                                         rope.pairs == plan::RopePairs::adjacent});
  }
  return uploader.finish();
}

// Through a second place on the card, from which the tiles are written.
Status CudaProgram::upload_tiles(const plan::Weight& weight, const WeightPlace& place,
                                 Uploader& uploader) {
  const auto align = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const int64_t codes = plan::row_bytes(weight) * weight.out * weight.experts;
  const int64_t scales = align(codes);
  const int64_t biases = scales + align(scale_bytes(weight));
  const int64_t total = biases + std::ssize(weight.biases);
  if (total > raw_bytes_ || !raw_block_) {
    KAPITSA_TRY(uploader.finish());  // what lies there is still being read
    raw_block_.reset();
    KAPITSA_ASSIGN(raw_block_, allocate_device(total, "loading weights"));
    raw_bytes_ = total;
  }
  for (int64_t expert = 0; expert < weight.experts; ++expert) {
    const std::span<const std::byte> matrix = plan::matrix_bytes(weight, expert);
    KAPITSA_TRY(uploader.copy(raw_block_.get() + expert * std::ssize(matrix), matrix));
  }
  for (int64_t expert = 0; scale_bytes(weight) > 0 && expert < weight.experts; ++expert) {
    const std::span<const std::byte> part = plan::matrix_scales(weight, expert);
    KAPITSA_TRY(uploader.copy(raw_block_.get() + scales + expert * std::ssize(part), part));
  }
  KAPITSA_TRY(uploader.copy(raw_block_.get() + biases, weight.biases));
  WeightPlace raw;
  raw.data = 0;
  if (scale_bytes(weight) > 0) raw.scales = scales;
  if (!weight.biases.empty()) raw.biases = biases;
  repack(view_of(weight, raw, raw_block_.get()), place.format,
         reinterpret_cast<uint8_t*>(weight_block_.get() + place.data), stream_.get());
  return check(cudaGetLastError(), "writing tiles");
}

// ---- A pass ----

Status CudaProgram::write_pass(const plan::Pass& pass) {
  const PassLayout& p = layout_.pass;
  if (std::ssize(pass.views) > p.max_views)
    return Error{ErrorCode::invalid_argument, fmt::format("pass: {} sequences, expected at most {}",
                                                          pass.views.size(), p.max_views)};
  Staged& staged = staged_[next_staged_];
  next_staged_ = (next_staged_ + 1) % staged_.size();
  KAPITSA_TRY(check(cudaEventSynchronize(staged.sent.get()), "sending a pass"));
  auto* out = reinterpret_cast<int32_t*>(staged.memory.get());
  const auto put = [&](int64_t at, std::span<const int32_t> values) {
    std::ranges::copy(values, out + at);
  };
  put(p.tokens, pass.tokens);
  put(p.positions, pass.positions);
  put(p.sequences, pass.sequences);
  put(p.slots, pass.slots);
  put(p.history, pass.history);
  put(p.outputs, pass.outputs);
  std::fill_n(out + p.first_row, pass.views.size(), 0);
  std::fill_n(out + p.end_row, pass.views.size(), 0);
  bool chain = true;
  for (int32_t row = 0; row < pass.n_rows(); ++row) {
    const int32_t parent = pass.parent(row);
    const int32_t view = pass.sequences[static_cast<size_t>(row)];
    const bool first = row == 0 || pass.sequences[static_cast<size_t>(row) - 1] != view;
    chain = chain && parent == (first ? -1 : row - 1);
    out[p.parents + row] = parent;
    out[p.depth + row] = parent < 0 ? 0 : out[p.depth + parent] + 1;
    if (first) out[p.first_row + view] = row;
    out[p.end_row + view] = row + 1;
  }
  int64_t next = p.lists;
  const auto append = [&](std::span<const int32_t> values) {
    put(next, values);
    next += std::ssize(values);
    return static_cast<int32_t>(next - std::ssize(values) - p.lists);
  };
  context_.n_keys = 0;
  for (size_t v = 0; v < pass.views.size(); ++v) {
    const plan::SequenceView& view = pass.views[v];
    const int64_t room = p.capacity - next;
    if (std::ssize(view.pages) + std::ssize(view.replay) > room)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("pass: sequence {} has {} pages and {} rows to replay, room is for "
                               "{} together",
                               v, view.pages.size(), view.replay.size(), room)};
    const auto index = static_cast<int64_t>(v);
    out[p.committed + index] = view.committed;
    out[p.state_slot + index] = view.state_slot;
    out[p.first_replay + index] = append(view.replay);
    out[p.n_replay + index] = static_cast<int32_t>(view.replay.size());
    out[p.first_page + index] = append(view.pages);
    context_.n_keys = std::max(context_.n_keys, view.committed + pass.n_rows());
  }
  out[PassView::kRows] = pass.n_rows();
  out[PassView::kOutputs] = static_cast<int32_t>(pass.outputs.size());
  out[PassView::kViews] = static_cast<int32_t>(pass.views.size());
  out[PassView::kPrefill] = pass.phase == plan::Phase::prefill ? 1 : 0;
  out[PassView::kChain] = chain ? 1 : 0;
  KAPITSA_TRY(
      check(cudaMemcpyAsync(buffer_block_.get() + layout_.pass_data, out,
                            static_cast<size_t>(next) * 4, cudaMemcpyHostToDevice, stream_.get()),
            "sending a pass"));
  return check(cudaEventRecord(staged.sent.get(), stream_.get()), "sending a pass");
}

void CudaProgram::launch_steps(int32_t routine) {
  context_.listed = {};
  for (const plan::Step& step : plan_.routines()[static_cast<size_t>(routine)].steps) {
    std::visit(
        [&](const auto& op) {
          if constexpr (Runnable<std::remove_cvref_t<decltype(op)>>) {
            run_op(context_, op);
          } else {
            KAPITSA_CHECK(false, "lowering left an op without a kernel");
          }
        },
        step.op);
  }
}

Status CudaProgram::launch_replays(int32_t routine, const ReplayView& replay) {
  for (const plan::Step& step : plan_.routines()[static_cast<size_t>(routine)].steps) {
    std::visit(
        [&](const auto& op) {
          if constexpr (Replayable<std::remove_cvref_t<decltype(op)>>)
            replay_op(context_, op, replay);
        },
        step.op);
  }
  return check(cudaGetLastError(), "starting a replay");
}

cudaGraphExec_t CudaProgram::graph_for(const plan::Pass& pass) const {
  if (pass.phase != plan::Phase::decode || pass.routine != 0) return nullptr;
  const auto found = graphs_.lower_bound(pass.n_rows());
  return found == graphs_.end() ? nullptr : found->second.get();
}

Status CudaProgram::run(const plan::Pass& pass) {
  KAPITSA_TRY(check_pass(plan_, context_.limits, pass));
  KAPITSA_TRY(write_pass(pass));
  context_.n_rows = pass.n_rows();
  context_.n_outputs = static_cast<int32_t>(pass.outputs.size());
  context_.n_views = static_cast<int32_t>(pass.views.size());
  context_.prefill = pass.phase == plan::Phase::prefill;
  last_rows_ = context_.n_rows;
  last_outputs_ = context_.n_outputs;
  const bool replays =
      std::ranges::any_of(pass.views, [](const auto& view) { return !view.replay.empty(); });
  if (replays) {
    const PassView& p = context_.pass;
    KAPITSA_TRY(launch_replays(
        pass.routine, {p.state_slot, p.first_replay, p.n_replay, p.replay, context_.n_views}));
  }
  if (const cudaGraphExec_t graph = graph_for(pass))
    return check(cudaGraphLaunch(graph, stream_.get()), "starting a graph");
  launch_steps(pass.routine);
  return check(cudaGetLastError(), "starting a pass");
}

Status CudaProgram::capture(int32_t bucket) {
  if (std::ranges::find(row_buckets_, bucket) == row_buckets_.end())
    return Error{ErrorCode::invalid_argument, fmt::format("cuda: no bucket of {} rows", bucket)};
  if (graphs_.contains(bucket) || bucket > context_.limits.max_rows) return {};
  context_.n_rows = bucket;
  context_.n_outputs = std::min(bucket, context_.limits.max_outputs);
  context_.n_views = std::min(bucket, layout_.pass.max_views);
  context_.n_keys = context_.limits.n_pages * context_.limits.page_tokens;
  context_.prefill = false;
  KAPITSA_TRY(check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
                    "capturing a graph"));
  launch_steps(0);
  cudaGraph_t graph = nullptr;
  KAPITSA_TRY(check(cudaStreamEndCapture(stream_.get(), &graph), "capturing a graph"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t code = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  KAPITSA_TRY(check(code, "preparing a graph"));
  graphs_.emplace(bucket, exec);
  return {};
}

Status CudaProgram::synchronise() {
  return check(cudaStreamSynchronize(stream_.get()), "running a pass");
}

Result<std::span<const float>> CudaProgram::read(plan::BufferId buffer, int32_t first_row,
                                                 int32_t n_rows) {
  if (buffer.index < 0 || std::cmp_greater_equal(buffer.index, plan_.buffers().size()))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("read: buffer {} of {}", buffer.index, plan_.buffers().size())};
  const plan::Buffer& b = plan_.buffer(buffer);
  const int32_t available = b.rows == plan::RowSpace::pass ? last_rows_ : last_outputs_;
  if (first_row < 0 || n_rows < 0 || first_row > available - n_rows)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("read: rows {} to {} of '{}', which holds {} rows", first_row,
                             int64_t{first_row} + n_rows, b.name, available)};
  const auto n = static_cast<size_t>(n_rows * b.width);
  const auto bytes = static_cast<int64_t>(n) * 4;
  if (bytes > read_bytes_) {
    KAPITSA_ASSIGN(read_memory_, allocate_pinned(bytes, "reading a buffer"));
    read_bytes_ = bytes;
  }
  const std::byte* from = context_.buffers[static_cast<size_t>(buffer.index)] +
                          first_row * b.width * static_cast<int64_t>(sizeof(float));
  if (n > 0)
    KAPITSA_TRY(check(cudaMemcpyAsync(read_memory_.get(), from, static_cast<size_t>(bytes),
                                      cudaMemcpyDeviceToHost, stream_.get()),
                      "reading a buffer"));
  KAPITSA_TRY(synchronise());
  if (b.dtype == DType::i32) {
    const auto* ids = reinterpret_cast<const int32_t*>(read_memory_.get());
    read_ids_.resize(n);
    std::transform(ids, ids + n, read_ids_.begin(),
                   [](int32_t id) { return static_cast<float>(id); });
    return std::span<const float>(read_ids_);
  }
  return std::span<const float>(reinterpret_cast<const float*>(read_memory_.get()), n);
}

// ---- Sequence state ----

template <typename F>
Status CudaProgram::for_each_state(int32_t state_slot, F f) {
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    const plan::State& state = plan_.states()[i];
    if (state.kind != plan::StateKind::recurrent) continue;
    const int64_t bytes = entry_bytes(state);
    KAPITSA_TRY(check(f(context_.states[i].data + state_slot * bytes, static_cast<size_t>(bytes)),
                      "a sequence's state"));
  }
  return {};
}

Status CudaProgram::clear_state(int32_t state_slot) {
  KAPITSA_TRY(check_state_slot(context_.limits, state_slot));
  return for_each_state(state_slot, [&](uint8_t* state, size_t bytes) {
    return cudaMemsetAsync(state, 0, bytes, stream_.get());
  });
}

Status CudaProgram::commit(int32_t state_slot, std::span<const int32_t> tape_rows) {
  KAPITSA_TRY(check_state_slot(context_.limits, state_slot));
  KAPITSA_TRY(check_tape_rows(context_.limits, tape_rows));
  if (std::ssize(tape_rows) > context_.limits.n_tape_rows)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("commit of {} rows, a tape holds {}", tape_rows.size(),
                             context_.limits.n_tape_rows)};
  // Not through page-locked memory: the call then returns when the list may be discarded.
  std::vector<int32_t> list = {state_slot, 0, static_cast<int32_t>(tape_rows.size())};
  list.insert(list.end(), tape_rows.begin(), tape_rows.end());
  auto* data = reinterpret_cast<int32_t*>(buffer_block_.get() + layout_.replay_data);
  KAPITSA_TRY(check(
      cudaMemcpyAsync(data, list.data(), list.size() * 4, cudaMemcpyHostToDevice, stream_.get()),
      "committing a path"));
  return launch_replays(0, {data, data + 1, data + 2, data + 3, 1});
}

Status CudaProgram::copy_slots(std::span<const SlotCopy> copies) {
  const int64_t n_slots = entries_of(context_.limits, plan::StateKind::kv_cache);
  for (const SlotCopy& copy : copies) {
    if (copy.from < 0 || copy.to < 0 || copy.from >= n_slots || copy.to >= n_slots)
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("copy of slot {} to {}, expected 0 to {}", copy.from, copy.to, n_slots - 1)};
  }
  for (size_t i = 0; i < plan_.states().size(); ++i) {
    const plan::State& state = plan_.states()[i];
    if (state.kind != plan::StateKind::kv_cache) continue;
    const int64_t bytes = entry_bytes(state);
    uint8_t* data = context_.states[i].data;
    for (const SlotCopy& copy : copies) {
      if (copy.from == copy.to) continue;
      KAPITSA_TRY(check(cudaMemcpyAsync(data + copy.to * bytes, data + copy.from * bytes,
                                        static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                        stream_.get()),
                        "copying slots"));
    }
  }
  return {};
}

Status CudaProgram::check_snapshot(int32_t state_slot, size_t n_bytes) const {
  KAPITSA_TRY(check_state_slot(context_.limits, state_slot));
  if (std::cmp_equal(n_bytes, state_bytes_)) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("a snapshot has {} bytes, not {}", state_bytes_, n_bytes)};
}

Status CudaProgram::save_state(int32_t state_slot, std::span<std::byte> bytes) {
  KAPITSA_TRY(check_snapshot(state_slot, bytes.size()));
  std::byte* to = bytes.data();
  KAPITSA_TRY(for_each_state(state_slot, [&](uint8_t* state, size_t n) {
    const cudaError_t code = cudaMemcpyAsync(to, state, n, cudaMemcpyDeviceToHost, stream_.get());
    to += n;
    return code;
  }));
  return synchronise();
}

Status CudaProgram::load_state(int32_t state_slot, std::span<const std::byte> bytes) {
  KAPITSA_TRY(check_snapshot(state_slot, bytes.size()));
  const std::byte* from = bytes.data();
  KAPITSA_TRY(for_each_state(state_slot, [&](uint8_t* state, size_t n) {
    const cudaError_t code = cudaMemcpyAsync(state, from, n, cudaMemcpyHostToDevice, stream_.get());
    from += n;
    return code;
  }));
  return synchronise();
}

}  // namespace kapitsa::backend::cuda
