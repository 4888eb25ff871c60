// The CPU backend as a whole: invariance of results to rows, threads, cuts and paths, agreement of
// the instruction sets, limits and errors. Single ops are compared with ref/ in tests/kernels.
#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/layout.h"
#include "backend/cpu/program.h"
#include "support/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace kapitsa::backend {
namespace {

using test::Decoder;
using test::DecoderShape;

constexpr int32_t kPageTokens = 64;

struct Runner {
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  plan::BufferId logits;
};

Runner open_runner(const Decoder& decoder, const DeviceOptions& options,
                   ComputeMode mode = ComputeMode::f32) {
  Runner runner;
  auto device = open_device("cpu", options);
  EXPECT_TRUE(device.ok()) << device.error().message;
  runner.device = std::move(*device);
  auto program = runner.device->load(
      decoder.plan, {.max_rows = 512, .max_outputs = 512, .n_pages = 16, .compute = mode});
  EXPECT_TRUE(program.ok()) << program.error().message;
  runner.program = std::move(*program);
  runner.logits = decoder.plan.logits;
  return runner;
}

// One sequence at pages 3, 2, 1, 0, 4, 5...: so that slots are not positions.
constexpr int32_t kPages[] = {3, 2, 1, 0, 4, 5, 6, 7, 8, 9, 10, 11};
struct Sequence {
  std::span<const int32_t> pages = kPages;
  int32_t committed = 0;

  int32_t slot(int32_t position) const {
    return pages[static_cast<size_t>(position / kPageTokens)] * kPageTokens +
           position % kPageTokens;
  }
};

struct RowSpec {
  int32_t token = 0, position = 0, slot = 0, parent = -1;
};

// Runs rows of one sequence and returns the logits of all of them.
std::vector<float> run_rows(Runner& runner, const Sequence& sequence,
                            const std::vector<RowSpec>& rows, plan::Phase phase, bool chain) {
  std::vector<int32_t> tokens, positions, sequences, slots, parents, outputs;
  for (const RowSpec& row : rows) {
    tokens.push_back(row.token);
    positions.push_back(row.position);
    sequences.push_back(0);
    slots.push_back(row.slot);
    parents.push_back(row.parent);
    outputs.push_back(static_cast<int32_t>(outputs.size()));
  }
  const plan::SequenceView view = {
      .pages = sequence.pages, .committed = sequence.committed, .chain = chain};
  plan::Pass pass = {.phase = phase,
                     .tokens = tokens,
                     .positions = positions,
                     .sequences = sequences,
                     .slots = slots,
                     .outputs = outputs,
                     .views = {&view, 1}};
  if (!chain) pass.parents = parents;
  const Status status = runner.program->run(pass);
  EXPECT_TRUE(status.ok()) << status.error().message;
  auto logits = runner.program->read(runner.logits, 0, static_cast<int32_t>(rows.size()));
  EXPECT_TRUE(logits.ok()) << logits.error().message;
  return {logits->begin(), logits->end()};
}

int32_t token_at(int32_t position) {
  return (position * 37 + 11) % 100;
}

std::vector<float> run_chain(Runner& runner, Sequence& sequence, int32_t n, plan::Phase phase) {
  std::vector<RowSpec> rows;
  for (int32_t i = 0; i < n; ++i) {
    const int32_t position = sequence.committed + i;
    rows.push_back({token_at(position), position, sequence.slot(position), -1});
  }
  auto logits = run_rows(runner, sequence, rows, phase, true);
  sequence.committed += n;
  return logits;
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// rms(a - b) / rms(b)
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const char* name : {"scalar", "avx2", "avx512", "neon"}) {
    if (open_device("cpu", {.n_threads = 1, .force_isa = name})) names.emplace_back(name);
  }
  return names;
}

struct IsaMode {
  std::string isa;
  ComputeMode mode;
  DType cache = DType::f16;
};

std::vector<IsaMode> isa_modes() {
  std::vector<IsaMode> all;
  for (const std::string& isa : available_isas()) {
    all.push_back({isa, ComputeMode::f32});
    all.push_back({isa, ComputeMode::fast});
    all.push_back({isa, ComputeMode::fast, DType::q8_0});
  }
  return all;
}

class CpuIsa : public testing::TestWithParam<IsaMode> {
protected:
  Runner open(int32_t n_threads) const {
    return open_runner(decoder_, {.n_threads = n_threads, .force_isa = GetParam().isa},
                       GetParam().mode);
  }
  const Decoder decoder_ =
      test::random_decoder({.vocab = 100, .cache = GetParam().cache}, DType::q4_1, DType::q8_0, 1);
};

INSTANTIATE_TEST_SUITE_P(Isa, CpuIsa, testing::ValuesIn(isa_modes()), [](const auto& param_info) {
  return param_info.param.isa + (param_info.param.mode == ComputeMode::f32 ? "_f32" : "_fast") +
         (param_info.param.cache == DType::q8_0 ? "_int8_cache" : "");
});

TEST_P(CpuIsa, prefill_does_not_depend_on_cuts_or_threads) {
  Runner one = open(1);
  Sequence whole;
  const auto expected = run_chain(one, whole, 300, plan::Phase::prefill);
  for (const int32_t n_threads : {1, 2, 3}) {
    Runner runner = open(n_threads);
    Sequence cut;
    std::vector<float> got;
    for (const int32_t n : {64, 128, 64, 44})
      append(got, run_chain(runner, cut, n, plan::Phase::prefill));
    EXPECT_TRUE(same_bits(got, expected)) << n_threads << " threads";
  }
}

TEST_P(CpuIsa, decode_rows_do_not_depend_on_their_number) {
  Runner one = open(2);
  Sequence singles;
  run_chain(one, singles, 250, plan::Phase::prefill);
  std::vector<float> expected;
  for (int i = 0; i < 32; ++i)
    append(expected, run_chain(one, singles, 1, plan::Phase::decode));
  for (const int32_t n : {2, 8, 32}) {
    Runner runner = open(3);
    Sequence sequence;
    run_chain(runner, sequence, 250, plan::Phase::prefill);
    std::vector<float> got;
    for (int32_t done = 0; done < 32; done += n)
      append(got, run_chain(runner, sequence, n, plan::Phase::decode));
    EXPECT_TRUE(same_bits(got, expected)) << n << " rows";
  }
}

// A tree: the row under test has ancestors in slots that the page table does not name, and rows of
// another branch beside it.
TEST_P(CpuIsa, tree_row_equals_the_same_path_as_a_chain) {
  Runner chain = open(2);
  Sequence a;
  run_chain(chain, a, 254, plan::Phase::prefill);
  const auto expected = run_chain(chain, a, 4, plan::Phase::decode);

  Runner tree = open(2);
  Sequence b;
  run_chain(tree, b, 254, plan::Phase::prefill);
  const int32_t spare = 700;  // slots beyond those of the sequence
  const std::vector<RowSpec> rows = {{token_at(254), 254, spare, -1},    {7, 254, spare + 1, -1},
                                     {token_at(255), 255, spare + 5, 0}, {8, 255, spare + 2, 1},
                                     {token_at(256), 256, spare + 3, 2}, {9, 256, spare + 4, 2},
                                     {token_at(257), 257, spare + 6, 4}};
  const auto got = run_rows(tree, b, rows, plan::Phase::decode, false);
  const auto vocab = static_cast<ptrdiff_t>(decoder_.shape.vocab);
  const std::vector<ptrdiff_t> path = {0, 2, 4, 6};
  for (size_t i = 0; i < path.size(); ++i) {
    const std::vector<float> row(got.begin() + path[i] * vocab,
                                 got.begin() + (path[i] + 1) * vocab);
    const auto at = expected.begin() + static_cast<ptrdiff_t>(i) * vocab;
    EXPECT_TRUE(same_bits(row, {at, at + vocab})) << "depth " << i;
  }

  // Moving the accepted path to its place gives the state of plain decoding.
  std::vector<Program::SlotCopy> copies;
  for (int32_t i = 0; i < 4; ++i)
    copies.push_back(
        {rows[static_cast<size_t>(path[static_cast<size_t>(i)])].slot, b.slot(254 + i)});
  ASSERT_TRUE(tree.program->copy_slots(copies).ok());
  b.committed += 4;
  EXPECT_TRUE(same_bits(run_chain(tree, b, 1, plan::Phase::decode),
                        run_chain(chain, a, 1, plan::Phase::decode)));
}

TEST_P(CpuIsa, two_sequences_in_a_pass_do_not_meet) {
  Runner alone = open(2);
  Sequence a;
  const auto expected = run_chain(alone, a, 3, plan::Phase::decode);

  Runner together = open(2);
  const Sequence first;
  const std::vector<int32_t> pages = {12};
  const plan::SequenceView views[] = {{.pages = first.pages}, {.pages = pages}};
  const std::vector<int32_t> tokens = {token_at(0), token_at(1), token_at(2), 5, 6};
  const std::vector<int32_t> positions = {0, 1, 2, 0, 1};
  const std::vector<int32_t> sequences = {0, 0, 0, 1, 1};
  const std::vector<int32_t> slots = {first.slot(0), first.slot(1), first.slot(2), 768, 769};
  const std::vector<int32_t> outputs = {0, 1, 2};
  const Status status = together.program->run({.tokens = tokens,
                                               .positions = positions,
                                               .sequences = sequences,
                                               .slots = slots,
                                               .outputs = outputs,
                                               .views = views});
  ASSERT_TRUE(status.ok()) << status.error().message;
  const auto logits = together.program->read(together.logits, 0, 3);
  ASSERT_TRUE(logits.ok());
  EXPECT_TRUE(same_bits({logits->begin(), logits->end()}, expected));
}

TEST_P(CpuIsa, agrees_with_scalar) {
  Runner scalar = open_runner(decoder_, {.n_threads = 1, .force_isa = "scalar"}, GetParam().mode);
  Runner runner = open(2);
  Sequence a, b;
  EXPECT_LT(relative_error(run_chain(runner, a, 100, plan::Phase::prefill),
                           run_chain(scalar, b, 100, plan::Phase::prefill)),
            // A rounding of K to f16, or of an activation to a byte, may go the other way.
            GetParam().mode == ComputeMode::f32 ? 2e-4 : 2e-2);
}

// Decoding in whole numbers with two planes is nearly exact, one byte for each value is not.
TEST_P(CpuIsa, fast_decoding_is_close_to_f32) {
  Runner exact = open_runner(decoder_, {.n_threads = 1, .force_isa = GetParam().isa});
  Runner runner = open(2);
  Sequence a, b;
  const auto expected = run_chain(exact, a, 16, plan::Phase::decode);
  // A cached byte may be rounded the other way.
  const double tolerance = GetParam().cache == DType::q8_0 ? 1e-2 : 1e-3;
  EXPECT_LT(relative_error(run_chain(runner, b, 16, plan::Phase::decode), expected), tolerance);
}

// Where memory is short, panels are made when they are needed: slower, the same bits.
TEST_P(CpuIsa, weights_that_are_not_copied_give_the_same_bits) {
  Runner copied = open(2);
  Runner mapped = open(2);
  const auto lowered = plan::lower(decoder_.plan, cpu::supports);
  const auto kernels = cpu::choose_kernels(GetParam().isa);
  ASSERT_TRUE(lowered.ok() && kernels.ok());
  auto program = cpu::CpuProgram::create(
      *lowered, {.max_rows = 512, .max_outputs = 512, .n_pages = 16, .compute = GetParam().mode},
      **kernels, std::make_shared<ThreadPool>(2), false);
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_LE((*program)->memory().weights, copied.program->memory().weights);
  mapped.program = std::move(*program);
  Sequence a, b;
  EXPECT_TRUE(same_bits(run_chain(mapped, a, 70, plan::Phase::prefill),
                        run_chain(copied, b, 70, plan::Phase::prefill)));
  EXPECT_TRUE(same_bits(run_chain(mapped, a, 3, plan::Phase::decode),
                        run_chain(copied, b, 3, plan::Phase::decode)));
}

// The output group of a value that is no number is none either, and no other.
TEST(Cpu, activations_that_are_no_numbers_stay_so_in_whole_numbers) {
  constexpr int64_t k = 64;
  const cpu::ActivationLayout layout = cpu::activation_layout(k);
  for (const std::string& isa : available_isas()) {
    const auto kernels = cpu::choose_kernels(isa);
    ASSERT_TRUE(kernels.ok());
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      for (size_t at = 0; at < 32; ++at) {
        std::vector<float> x(k, 0.5F);
        x[at] = bad;
        std::vector<uint8_t> record(static_cast<size_t>(layout.bytes));
        (*kernels)->quantise(x.data(), k, 0, k, cpu::kExactPlanes, record.data());
        float scales[2];
        std::memcpy(scales, record.data() + layout.scale, sizeof scales);
        EXPECT_FALSE(std::isfinite(scales[0])) << isa << ", element " << at;
        EXPECT_FLOAT_EQ(scales[1], 0.5F / 16256.0F);
      }
    }
  }
}

TEST(Cpu, an_int8_cache_takes_little_more_than_half) {
  auto device = open_device("cpu", {});
  ASSERT_TRUE(device.ok());
  const auto bytes = [&](DType cache) {
    const Decoder decoder =
        test::random_decoder({.head_dim = 64, .cache = cache}, DType::q8_0, DType::f16, 1);
    const auto need = (*device)->memory_need(decoder.plan, {.n_pages = 4});
    EXPECT_TRUE(need.ok());
    return need.ok() ? need->kv_cache : 0;
  };
  // 2 layers of k and v, 4 pages of 64 tokens, 2 heads of 64: bytes, and a scale for each 32.
  EXPECT_EQ(bytes(DType::q8_0), 2 * 2 * 4 * 64 * 2 * (64 + 4));
  EXPECT_EQ(bytes(DType::f16), 2 * 2 * 4 * 64 * 2 * 64 * 2);
}

TEST(Cpu, memory_is_what_was_announced) {
  const Decoder decoder = test::random_decoder({}, DType::q8_0, DType::f16, 1);
  auto device = open_device("cpu", {});
  ASSERT_TRUE(device.ok());
  const ProgramLimits limits = {.n_pages = 4};
  const auto need = (*device)->memory_need(decoder.plan, limits);
  const auto program = (*device)->load(decoder.plan, limits);
  ASSERT_TRUE(need.ok() && program.ok());
  EXPECT_EQ((*program)->memory().total(), need->total());
  // 2 layers of k and v, 4 pages of 64 tokens, 64 halves each, in whole 4 KiB pages.
  EXPECT_EQ(need->kv_cache, 2 * 2 * 4 * 64 * 64 * 2);
}

TEST(Cpu, a_block_scale_that_is_no_number_is_named) {
  const Decoder decoder = test::random_decoder({}, DType::q8_0, DType::f16, 1);
  auto device = open_device("cpu", {});
  ASSERT_TRUE(device.ok());
  for (const plan::Weight& weight : decoder.plan.weights()) {
    if (weight.dtype != DType::q8_0 || weight.name.find("embed") != std::string::npos) continue;
    auto* scale = const_cast<std::byte*>(weight.data.data()) + 34;  // of the second block
    scale[0] = std::byte{0x01};
    scale[1] = std::byte{0x7C};
    const auto program = (*device)->load(decoder.plan, {.n_pages = 4});
    ASSERT_FALSE(program.ok());
    EXPECT_EQ(program.error().code, ErrorCode::corrupt_file);
    EXPECT_NE(program.error().message.find("'" + weight.name + "': expected finite block scales"),
              std::string::npos)
        << program.error().message;
    return;
  }
  FAIL() << "no matrix of the wanted type";
}

TEST(Cpu, too_much_memory_is_an_error_that_says_how_much_is_missing) {
  const Decoder decoder = test::random_decoder({}, DType::q8_0, DType::f16, 1);
  auto device = open_device("cpu", {});
  ASSERT_TRUE(device.ok());
  const auto program = (*device)->load(decoder.plan, {.n_pages = 33'000'000});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(program.error().message.find("are missing"), std::string::npos)
      << program.error().message;
}

TEST(Cpu, unknown_isa_lists_the_available_ones) {
  const auto device = open_device("cpu", {.force_isa = "mmx"});
  ASSERT_FALSE(device.ok());
  EXPECT_NE(device.error().message.find("available: "), std::string::npos);
  EXPECT_NE(device.error().message.find("scalar"), std::string::npos);
}

// What makes a pass bad is check_pass's; here only that nothing runs unchecked.
TEST(Cpu, bad_passes_and_slots_are_errors) {
  const Decoder decoder = test::random_decoder({}, DType::q8_0, DType::f16, 1);
  auto device = open_device("cpu", {.n_threads = 1});
  ASSERT_TRUE(device.ok());
  auto program = (*device)->load(decoder.plan, {.max_rows = 4, .max_outputs = 2, .n_pages = 2});
  ASSERT_TRUE(program.ok());
  const std::vector<int32_t> zero = {0}, pages = {0};
  const plan::SequenceView view = {.pages = pages};
  plan::Pass pass = {.tokens = zero,
                     .positions = zero,
                     .sequences = zero,
                     .slots = zero,
                     .outputs = zero,
                     .views = {&view, 1}};
  EXPECT_FALSE((*program)->read(decoder.plan.logits, 0, 1).ok()) << "no pass has run";
  EXPECT_TRUE((*program)->run(pass).ok());
  EXPECT_TRUE((*program)->read(decoder.plan.logits, 0, 1).ok());
  EXPECT_FALSE((*program)->read(decoder.plan.logits, 0, 2).ok());
  EXPECT_FALSE((*program)->read({}, 0, 1).ok());
  const std::vector<int32_t> outside = {static_cast<int32_t>(decoder.shape.vocab)};
  pass.tokens = outside;
  EXPECT_FALSE((*program)->run(pass).ok());
  EXPECT_FALSE((*program)->clear_state(1).ok());
  const Program::SlotCopy copy = {.from = 0, .to = 128};
  EXPECT_FALSE((*program)->copy_slots({&copy, 1}).ok());
}

}  // namespace
}  // namespace kapitsa::backend
