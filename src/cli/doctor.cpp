// kapitsa doctor: what this machine has, what Kapitsa makes of it, and whether its kernels compute
// what they should.
#include "base/bandwidth.h"
#include "base/json_write.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/machine_report.h"
#include "cli/models.h"
#include "cli/show.h"
#include "kapitsa/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace kapitsa::cli {
namespace {

struct DoctorOptions {
  bool json = false;
  int threads = 0;
};

struct Findings {
  MachineInfo machine;
  std::vector<Bandwidth> bandwidths;  // of one thread and of all
  std::vector<std::string> problems;
  Diagnosis diagnosis;
};

constexpr size_t kColumns = 80;
constexpr size_t kLabel = 14;
constexpr double kSecondsPerBandwidth = 0.5;

// A label, and a value that goes on in further lines below itself.
void print_field(const std::string& label, const std::string& value) {
  std::string rest = value;
  std::string shown = label;
  do {
    size_t end = rest.size();
    if (end > kColumns - kLabel) {
      const size_t space = rest.rfind(' ', kColumns - kLabel);
      end = space == std::string::npos ? kColumns - kLabel : space;
    }
    fmt::print("  {:<{}}{}\n", shown, kLabel - 2, rest.substr(0, end));
    rest.erase(0, std::min(rest.size(), end + 1));
    shown.clear();
  } while (!rest.empty());
}

void print_machine(const Findings& findings) {
  const MachineInfo& machine = findings.machine;
  fmt::print("Machine\n");
  print_field("CPU", machine.cpu);
  print_field("cores", fmt::format("{} usable, {} hardware threads", machine.usable_cores,
                                   machine.logical_cores));
  print_field("features", fmt::format("{}", fmt::join(machine.features, " ")));
  print_field("memory", fmt::format("{}, {} free", show_bytes(machine.memory_bytes),
                                    show_bytes(machine.available_bytes)));
  if (!machine.huge_pages.empty()) print_field("huge pages", machine.huge_pages);
  print_field("system", machine.system + " " + machine.architecture);
  for (const Bandwidth& bandwidth : findings.bandwidths) {
    print_field(
        fmt::format("{} thread{}", bandwidth.n_threads, bandwidth.n_threads == 1 ? "" : "s"),
        show_rate(bandwidth.bytes_per_second) + " read from memory");
  }
  const auto folders = model_folders();
  fmt::print("\nKapitsa {} ({})\n", kVersion, kCommit);
  print_field("build", build_text());
  print_field("data", folders ? folders->data.string() : folders.error().message);
  for (const Variant& variant : findings.diagnosis.variants) {
    print_field(variant.backend, fmt::format("{}{}", variant.description,
                                             variant.chosen ? "  <- runs by default" : ""));
  }
  for (const std::string& reason : findings.diagnosis.absent)
    print_field("not here", reason);
}

std::string cell(const KernelCheck& check) {
  if (!check.present) return "-";
  if (!check.problem.empty()) return "failed";
  return fmt::format("{:.0e}{}", check.error, check.passed() ? "" : " !");
}

// One row per op, one column per variant: the error of the arithmetic that runs by default.
void print_checks(const Diagnosis& diagnosis) {
  std::vector<std::string> heading = {"  kernel"};
  for (const Variant& variant : diagnosis.variants)
    heading.push_back(variant.isa.empty() ? variant.backend : variant.isa);
  Table table(heading);
  std::vector<std::string> row;
  for (const KernelCheck& check : diagnosis.checks) {
    if (!check.fast) continue;
    if (row.empty()) row.push_back("  " + check.op);
    row.push_back(cell(check));
    if (row.size() == heading.size()) {
      table.add(row);
      row.clear();
    }
  }
  fmt::print("\nSelf-test: largest error relative to the reference\n{}", table.text());
  if (!std::ranges::all_of(diagnosis.checks, &KernelCheck::present))
    fmt::print("  -: not in this backend yet, so models that need it do not run on it\n");
}

// One line for each thing that is wrong.
std::vector<std::string> problems_of(const Findings& findings) {
  std::vector<std::string> problems = findings.problems;
  for (const KernelCheck& check : findings.diagnosis.checks) {
    if (!check.present || check.passed()) continue;
    problems.push_back(
        fmt::format("{} on {} {} in {}: {}", check.op, check.variant.backend, check.variant.isa,
                    check.fast ? "fast arithmetic" : "f32",
                    check.problem.empty()
                        ? fmt::format("error {:.1e}, allowed {:.1e}", check.error, check.tolerance)
                        : check.problem));
  }
  return problems;
}

std::string to_json(const Findings& findings) {
  JsonWriter json(2);
  json.begin_object().member("version", kVersion).member("commit", kCommit);
  json.member("build", build_text()).key("machine");
  write_machine(json, findings.machine);
  json.key("bandwidth").begin_array();
  for (const Bandwidth& bandwidth : findings.bandwidths) {
    json.begin_object()
        .member("threads", bandwidth.n_threads)
        .member("bytes_per_second", bandwidth.bytes_per_second)
        .end_object();
  }
  json.end_array().key("variants").begin_array();
  for (const Variant& variant : findings.diagnosis.variants) {
    json.begin_object()
        .member("backend", variant.backend)
        .member("isa", variant.isa)
        .member("description", variant.description)
        .member("chosen", variant.chosen)
        .end_object();
  }
  json.end_array().key("absent").begin_array();
  for (const std::string& reason : findings.diagnosis.absent)
    json.value(reason);
  json.end_array().key("checks").begin_array();
  for (const KernelCheck& check : findings.diagnosis.checks) {
    json.begin_object()
        .member("op", check.op)
        .member("backend", check.variant.backend)
        .member("isa", check.variant.isa)
        .member("arithmetic", check.fast ? "fast" : "f32")
        .member("present", check.present)
        .member("error", check.error)
        .member("tolerance", check.tolerance)
        .member("passed", !check.present || check.passed())
        .end_object();
  }
  json.end_array().key("problems").begin_array();
  const std::vector<std::string> problems = problems_of(findings);
  for (const std::string& problem : problems)
    json.value(problem);
  return json.end_array().member("healthy", problems.empty()).end_object().take();
}

Findings examine(const DoctorOptions& options) {
  Findings findings;
  findings.machine = machine_info();
  const int all = options.threads > 0 ? options.threads : findings.machine.usable_cores;
  for (const int threads : {1, all}) {
    if (threads == 1 && !findings.bandwidths.empty()) continue;  // a machine with one core
    const auto bandwidth = measure_bandwidth(threads, kSecondsPerBandwidth);
    if (bandwidth) {
      findings.bandwidths.push_back(*bandwidth);
    } else {
      findings.problems.push_back(bandwidth.error().message);
    }
  }
  findings.diagnosis = diagnose(options.threads);
  findings.problems.insert(findings.problems.end(), findings.diagnosis.problems.begin(),
                           findings.diagnosis.problems.end());
  return findings;
}

int doctor_command(const DoctorOptions& options) {
  const Findings findings = examine(options);
  const std::vector<std::string> problems = problems_of(findings);
  if (options.json) {
    fmt::print("{}\n", to_json(findings));
    return problems.empty() ? 0 : kExitFailed;
  }
  print_machine(findings);
  print_checks(findings.diagnosis);
  fmt::print("\n");
  for (const std::string& problem : problems)
    fmt::print("problem: {}\n", problem);
  if (!problems.empty()) return kExitFailed;
  fmt::print("All is well: {} checks in {:.1f} s.\n",
             std::ranges::count_if(findings.diagnosis.checks, &KernelCheck::present),
             findings.diagnosis.seconds);
  return 0;
}

}  // namespace

void add_doctor(const Command& app, int& exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  const Command command =
      app.subcommand("doctor", "Look at the machine and test the kernels on it");
  command.flag("--json", options->json, "The findings as one JSON object");
  command.option("-t,--threads", options->threads, "CPU threads; default: one per core")
      .range(int64_t{1}, int64_t{1024});
  command.footer("Takes a few seconds. Exit code 1 when something is wrong.\n"
                 "Examples:\n"
                 "  kapitsa doctor\n"
                 "  kapitsa doctor --json > doctor.json     for a bug report");
  command.on_run([options, &exit_code] { exit_code = doctor_command(*options); });
}

}  // namespace kapitsa::cli
