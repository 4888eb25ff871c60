// The facade's diagnose(): every variant of every backend through the self-test.
#include "kapitsa/diagnose.h"

#include "engine/probe.h"
#include "engine/self_test.h"

#include <chrono>
#include <limits>
#include <memory>

namespace kapitsa {
namespace {

using engine::Probe;
using engine::TestPlan;

// Between any two orders of a sum of at most 512 products, and with another exponential function.
constexpr double kF32Tolerance = 1e-4;

constexpr int32_t kPrompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
constexpr int32_t kNext[] = {11};

struct OpenVariant {
  Variant variant;
  std::unique_ptr<backend::Device> device;
};

// Names of instruction sets that a backend may take; one that it does not have does not open.
constexpr const char* kIsas[] = {"avx512", "avx2", "neon", "scalar"};

void open_variants(const backend::BackendEntry& entry, int threads, Diagnosis& diagnosis,
                   std::vector<OpenVariant>& open) {
  auto best = entry.open({.n_threads = threads, .force_isa = ""});
  if (!best) {
    const Error& error = best.error();
    (error.code == ErrorCode::unsupported ? diagnosis.absent : diagnosis.problems)
        .push_back(error.message);
    return;
  }
  const bool first = open.empty();
  const size_t n_before = open.size();
  const std::string description = (*best)->info().name;
  for (const char* isa : kIsas) {
    auto device = entry.open({.n_threads = threads, .force_isa = isa});
    if (!device) continue;
    const std::string name = (*device)->info().name;
    open.push_back({{entry.name, isa, name, first && name == description}, std::move(*device)});
  }
  if (open.size() == n_before)
    open.push_back({{entry.name, "", description, first}, std::move(*best)});
}

// The outputs after a prefill and after a decode pass.
Result<std::vector<std::vector<float>>> run_case(backend::Device& device, const TestPlan& test,
                                                 backend::ComputeMode compute) {
  KAPITSA_ASSIGN(Probe probe, Probe::open(device, test.plan, {.compute = compute}));
  std::vector<std::vector<float>> written;
  const auto record = [&]() -> Status {
    for (const plan::BufferId output : test.outputs) {
      KAPITSA_ASSIGN(const std::span<const float> values, probe.read(output));
      written.emplace_back(values.begin(), values.end());
    }
    return {};
  };
  KAPITSA_TRY(probe.run(plan::Phase::prefill, kPrompt));
  KAPITSA_TRY(record());
  KAPITSA_TRY(probe.run(plan::Phase::decode, kNext));
  KAPITSA_TRY(record());
  return written;
}

void check(const engine::SelfTestCase& test_case, const OpenVariant& open, bool fast,
           const TestPlan& test, const std::vector<std::vector<float>>& expected,
           std::vector<KernelCheck>& checks) {
  KernelCheck check;
  check.op = test_case.op;
  check.variant = open.variant;
  check.fast = fast;
  check.tolerance =
      fast && test_case.fast_tolerance > 0.0 ? test_case.fast_tolerance : kF32Tolerance;
  const auto found =
      run_case(*open.device, test, fast ? backend::ComputeMode::fast : backend::ComputeMode::f32);
  check.present = found.ok() || found.error().code != ErrorCode::unsupported;
  if (found) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const plan::BufferId output = test.outputs[i % test.outputs.size()];
      check.error =
          std::max(check.error, engine::relative_difference(expected[i], (*found)[i],
                                                            test.plan.buffer(output).width));
    }
  } else if (check.present) {
    check.problem = found.error().message;
  }
  checks.push_back(std::move(check));
}

}  // namespace

Diagnosis diagnose(int threads) {
  const auto start = std::chrono::steady_clock::now();
  Diagnosis diagnosis;
  std::vector<OpenVariant> open;
  for (const backend::BackendEntry& entry : backend::backends())
    open_variants(entry, threads, diagnosis, open);
  for (const OpenVariant& one : open)
    diagnosis.variants.push_back(one.variant);

  auto reference = backend::open_device("ref", {});
  if (!reference) {
    diagnosis.problems.push_back("ref: " + reference.error().message);
    return diagnosis;
  }
  for (const engine::SelfTestCase& test_case : engine::self_test_cases()) {
    TestPlan test;
    test_case.build(test);
    const auto expected = run_case(**reference, test, backend::ComputeMode::f32);
    if (!expected) {
      diagnosis.problems.push_back("self-test " + test_case.op + ": " + expected.error().message);
      continue;
    }
    for (const OpenVariant& one : open) {
      for (const bool fast : {true, false})
        check(test_case, one, fast, test, *expected, diagnosis.checks);
    }
  }
  diagnosis.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return diagnosis;
}

}  // namespace kapitsa
