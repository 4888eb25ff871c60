#include "base/machine.h"

#include "base/system.h"

#include <sys/utsname.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

namespace kapitsa {
namespace {

#ifdef __APPLE__

std::string sysctl_text(const char* name) {
  char text[256] = {};
  size_t size = sizeof text - 1;
  return ::sysctlbyname(name, text, &size, nullptr, 0) == 0 ? std::string(text) : std::string();
}

void read_processor(const std::filesystem::path&, MachineInfo& machine) {
  machine.cpu = sysctl_text("machdep.cpu.brand_string");
  for (const char* feature : {"FEAT_DotProd", "FEAT_I8MM", "FEAT_BF16", "FEAT_FP16"}) {
    int present = 0;
    size_t size = sizeof present;
    const std::string key = std::string("hw.optional.arm.") + feature;
    if (::sysctlbyname(key.c_str(), &present, &size, nullptr, 0) == 0 && present != 0)
      machine.features.emplace_back(feature + 5);
  }
}

#else

constexpr std::string_view kFeatures[] = {
    // x86-64
    "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16",
    // 64-bit Arm
    "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2"};

// The text after "key : " on the first line that begins with the key.
std::string value_of(std::string_view text, std::string_view key) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string_view::npos) {
      const size_t first = line.find_first_not_of(" \t", colon + 1);
      return first == std::string_view::npos ? std::string() : std::string(line.substr(first));
    }
    begin = end + 1;
  }
  return {};
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

void read_processor(const std::filesystem::path& root, MachineInfo& machine) {
  const std::string info = read_all(root / "proc/cpuinfo");
  machine.cpu = value_of(info, "model name");
  std::istringstream words(value_of(info, "flags") + " " + value_of(info, "Features"));
  std::vector<std::string> flags;
  for (std::string word; words >> word;)
    flags.push_back(word);
  for (const std::string_view feature : kFeatures) {
    if (std::ranges::find(flags, feature) != flags.end()) machine.features.emplace_back(feature);
  }
  // "always [madvise] never": the chosen one is in brackets.
  const std::string modes = read_all(root / "sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = modes.find('[');
  const size_t close = modes.find(']');
  if (open != std::string::npos && close != std::string::npos && open < close)
    machine.huge_pages = modes.substr(open + 1, close - open - 1);
}

#endif

}  // namespace

MachineInfo machine_info(const std::filesystem::path& root) {
  MachineInfo machine;
  read_processor(root, machine);
  machine.logical_cores = static_cast<int>(std::thread::hardware_concurrency());
  machine.usable_cores = available_cores(root);
  if (const auto memory = memory_info(root)) {
    machine.memory_bytes = memory->total_bytes;
    machine.available_bytes = memory->available_bytes;
  }
  struct utsname name{};
  if (::uname(&name) == 0) {
    machine.system = std::string(name.sysname) + " " + name.release;
    machine.architecture = name.machine;
  }
  return machine;
}

}  // namespace kapitsa
