// Passes that break one limit each, on the reference device.
#include "backend/backend.h"
#include "support/plan_builder.h"

#include <gtest/gtest.h>

#include <functional>

namespace kapitsa::test {
namespace {

// A valid pass of three rows, a tree, over a plan with a cache and a recurrent state.
struct Fixture {
  PlanBuilder b{1};
  std::unique_ptr<backend::Device> device;
  std::unique_ptr<backend::Program> program;
  plan::BufferId out;
  std::vector<int32_t> tokens = {1, 2, 3}, positions = {1, 2, 2}, sequences = {0, 0, 0};
  std::vector<int32_t> slots = {65, 66, 3}, parents = {-1, 0, 0}, outputs = {0, 2}, pages = {1};
  std::vector<int32_t> replay = {0};
  std::vector<plan::SequenceView> views;
  plan::Pass pass;

  Fixture() {
    const plan::BufferId x = b.input(4);
    out = b.output(4);
    b.op(plan::CacheAppend{b.plan.heads(x), b.cache(4)});
    b.op(plan::CausalConv{.in = x,
                          .out = out,
                          .weight = b.matrix(4, 2),
                          .bias = {},
                          .taps = 2,
                          .memory = b.memory(4, 4)});
    device = std::move(backend::open_device("ref", {}).value());
    backend::ProgramLimits limits;
    limits.max_rows = 4;
    limits.max_outputs = 2;
    limits.n_pages = 2;
    limits.n_state_slots = 2;
    limits.n_tape_rows = 3;
    program = std::move(device->load(b.plan, limits).value());
    views.push_back({pages, 1, 0, false, replay});
  }
  Status run() {
    pass.tokens = tokens;
    pass.positions = positions;
    pass.sequences = sequences;
    pass.slots = slots;
    pass.parents = parents;
    pass.outputs = outputs;
    pass.views = views;
    return program->run(pass);
  }
};

TEST(CheckPass, AcceptsAValidPass) {
  Fixture f;
  const Status status = f.run();
  EXPECT_TRUE(status) << status.error().message;
}

TEST(CheckPass, RefusesEachBrokenLimitInOneLine) {
  const std::vector<std::pair<std::function<void(Fixture&)>, const char*>> broken = {
      {[](Fixture& f) { f.pass.routine = 1; }, "routine 1"},
      {[](Fixture& f) { f.tokens.clear(); }, "no rows"},
      {[](Fixture& f) { f.tokens.resize(5); }, "at most 4"},
      {[](Fixture& f) { f.positions.pop_back(); }, "2 positions"},
      {[](Fixture& f) { f.parents.pop_back(); }, "2 parents"},
      {[](Fixture& f) { f.outputs = {0, 1, 2}; }, "at most 2"},
      {[](Fixture& f) { f.outputs = {2, 0}; }, "rising"},
      {[](Fixture& f) { f.outputs = {3}; }, "rising"},
      {[](Fixture& f) { f.tokens[1] = kVocab; }, "token 131, outside the vocabulary of 131"},
      {[](Fixture& f) { f.tokens[1] = -1; }, "token -1"},
      {[](Fixture& f) { f.sequences[2] = 1; }, "sequence 1 of 1"},
      {[](Fixture& f) { f.slots[2] = 128; }, "slot 128 of 128"},
      {[](Fixture& f) { f.slots[2] = 65; }, "two rows write slot 65"},
      {[](Fixture& f) { f.parents[1] = 1; }, "row 1 has parent 1"},
      {[](Fixture& f) { f.positions[1] = 3; }, "its parent at 1"},
      {[](Fixture& f) { f.positions[0] = 0; }, "inside the 1 committed"},
      {[](Fixture& f) { f.views[0].chain = true; }, "its page table says 66"},
      {[](Fixture& f) { f.pages[0] = 2; }, "page 2 of 2"},
      {[](Fixture& f) { f.views[0].state_slot = 2; }, "state slot 2 of 2"},
      {[](Fixture& f) { f.views.push_back(f.views[0]); }, "share state slot 0"},
      {[](Fixture& f) { f.replay[0] = 3; }, "tape row 3 of 3"},
      {[](Fixture& f) { f.pass.phase = plan::Phase::prefill; }, "prefill"},
      {[](Fixture& f) { f.views[0].committed = 65; }, "only 1 pages"},
  };
  for (const auto& [change, expected] : broken) {
    Fixture f;
    change(f);
    const Status status = f.run();
    ASSERT_FALSE(status) << expected;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(status.error().message.find(expected), std::string::npos) << status.error().message;
  }
}

TEST(RefProgram, ReadsOnlyReadableRows) {
  Fixture f;
  ASSERT_TRUE(f.run());
  EXPECT_TRUE(f.program->read(f.out, 0, 3));
  EXPECT_FALSE(f.program->read(f.out, 2, 3));
  EXPECT_FALSE(f.program->read({0}, 0, 1));
  EXPECT_FALSE(f.program->read({}, 0, 1));
}

TEST(RefProgram, CopiesSlotsInOrder) {
  Fixture f;
  EXPECT_TRUE(f.program->copy_slots(std::vector<backend::Program::SlotCopy>{{3, 66}, {66, 67}}));
  EXPECT_FALSE(f.program->copy_slots(std::vector<backend::Program::SlotCopy>{{3, 128}}));
}

TEST(RefDevice, SaysWhatAProgramNeeds) {
  Fixture f;
  backend::ProgramLimits limits;
  limits.n_pages = 1;
  const auto need = f.device->memory_need(f.b.plan, limits);
  ASSERT_TRUE(need);
  EXPECT_EQ(need->kv_cache, 64 * 4 * 8);
  EXPECT_EQ(need->recurrent, (1 + 32) * 4 * 8);
  EXPECT_EQ(need->weights, 0);
}

TEST(RefDevice, BuffersCheckTheirRange) {
  Fixture f;
  const auto buffer = std::move(f.device->allocate(8).value());
  std::vector<std::byte> bytes(4, std::byte{7});
  EXPECT_TRUE(buffer->write(4, bytes));
  bytes.assign(4, std::byte{0});
  EXPECT_TRUE(buffer->read(4, bytes));
  EXPECT_EQ(bytes[3], std::byte{7});
  EXPECT_FALSE(buffer->write(5, bytes));
  EXPECT_FALSE(buffer->read(-1, bytes));
}

TEST(RefDevice, RefusesSampleByName) {
  PlanBuilder b(1);
  const plan::BufferId token = b.output(1, DType::i32);
  b.op(plan::Sample{b.input(4), token});
  const auto device = backend::open_device("ref", {});
  const auto program = (*device)->load(b.plan, {});
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message.find("Sample"), std::string::npos);
}

}  // namespace
}  // namespace kapitsa::test
