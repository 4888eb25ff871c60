#include "base/system.h"

#include <sys/ioctl.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#else
#include <sched.h>
#include <sys/auxv.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace kapitsa {
namespace {

namespace fs = std::filesystem;

int logical_cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

#ifndef __APPLE__

// Files of /proc and /sys say that they are empty, so read_text_file cannot read them.
std::optional<std::string> read_small(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

// The first number of a text; nullopt for "max" or anything else.
std::optional<int64_t> first_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> number_in(const fs::path& path) {
  const auto text = read_small(path);
  return text ? first_number(*text) : std::nullopt;
}

// The number after `key` at the start of a line.
std::optional<int64_t> field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return first_number(line.substr(key.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

// The folders that limit this process, from its own cgroup up to the root: those of cgroup v2, or
// those of one v1 controller. Inside a container the path of /proc may lie outside of what is
// mounted; then only the root exists, and it is the container's own cgroup.
struct Cgroups {
  std::vector<fs::path> v2;
  std::vector<fs::path> v1;
};

Cgroups find_cgroups(const fs::path& root, std::string_view controller) {
  Cgroups found;
  std::istringstream lines(read_small(root / "proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    // hierarchy-id : controllers, comma-separated : path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const fs::path mount = is_v2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    std::vector<fs::path>& folders = is_v2 ? found.v2 : found.v1;
    for (fs::path own = fs::path(line.substr(second + 1)).relative_path(); !own.empty();
         own = own.parent_path())
      folders.push_back(mount / own);
    folders.push_back(mount);
  }
  return found;
}

// Whole CPUs; nullopt without a limit.
std::optional<int> cpu_quota(const fs::path& root) {
  double quota = std::numeric_limits<double>::infinity();
  const auto limit = [&](std::optional<int64_t> used, std::optional<int64_t> period) {
    if (used && period && *used > 0 && *period > 0)
      quota = std::min(quota, static_cast<double>(*used) / static_cast<double>(*period));
  };
  const Cgroups cgroups = find_cgroups(root, "cpu");
  for (const fs::path& folder : cgroups.v2) {
    const std::string text = read_small(folder / "cpu.max").value_or("");
    const size_t space = text.find(' ');
    if (space != std::string::npos) limit(first_number(text), first_number(text.substr(space)));
  }
  for (const fs::path& folder : cgroups.v1)
    limit(number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us"));
  if (!std::isfinite(quota)) return std::nullopt;
  return std::max(1, static_cast<int>(std::min(quota, 1e6)));
}

// Counts a core once however many of its hardware threads the mask holds.
int physical_cores_in_mask(const fs::path& root) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return logical_cores();
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<size_t>(cpu), &mask)) continue;
    const std::string name = fmt::format("cpu{}", cpu);
    const fs::path siblings =
        root / "sys/devices/system/cpu" / name / "topology/thread_siblings_list";
    cores.insert(read_small(siblings).value_or(name));
  }
  return std::max(1, static_cast<int>(cores.size()));
}

// Lowers `memory` to one cgroup's limit. File pages that nobody used lately count as available, as
// they do in MemAvailable.
void apply_limit(MemoryInfo& memory, std::optional<int64_t> limit, std::optional<int64_t> usage,
                 std::optional<int64_t> inactive_file) {
  if (!limit) return;
  memory.total_bytes = std::min(memory.total_bytes, *limit);
  const int64_t in_use = std::max<int64_t>(0, usage.value_or(0) - inactive_file.value_or(0));
  memory.available_bytes = std::min(memory.available_bytes, std::max<int64_t>(0, *limit - in_use));
}

#endif

}  // namespace

#ifdef __APPLE__

int available_cores(const fs::path&) {
  int cores = 0;
  size_t size = sizeof cores;
  if (::sysctlbyname("hw.physicalcpu", &cores, &size, nullptr, 0) != 0 || cores < 1)
    return logical_cores();
  return cores;
}

Result<MemoryInfo> memory_info(const fs::path&) {
  int64_t total = 0;
  size_t size = sizeof total;
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (::sysctlbyname("hw.memsize", &total, &size, nullptr, 0) != 0 ||
      ::host_statistics64(::mach_host_self(), HOST_VM_INFO64,
                          reinterpret_cast<host_info64_t>(&pages), &count) != KERN_SUCCESS)
    return Error{ErrorCode::io, "the system does not say how much memory it has"};
  const int64_t reclaimable =
      int64_t{pages.free_count} + pages.inactive_count + pages.purgeable_count;
  return MemoryInfo{total, std::min(total, reclaimable * static_cast<int64_t>(vm_page_size))};
}

#else

int available_cores(const fs::path& root) {
  const int cores = physical_cores_in_mask(root);
  return std::min(cores, cpu_quota(root).value_or(cores));
}

Result<MemoryInfo> memory_info(const fs::path& root) {
  const fs::path path = root / "proc/meminfo";
  const std::string text = read_small(path).value_or("");
  const auto total = field(text, "MemTotal:");
  const auto available = field(text, "MemAvailable:");
  if (!total || !available)
    return Error{ErrorCode::io, path.string() + ": expected lines MemTotal and MemAvailable"};
  MemoryInfo memory{*total * 1024, *available * 1024};  // the file counts in KiB
  const Cgroups cgroups = find_cgroups(root, "memory");
  for (const fs::path& folder : cgroups.v2)
    apply_limit(memory, number_in(folder / "memory.max"), number_in(folder / "memory.current"),
                field(read_small(folder / "memory.stat").value_or(""), "inactive_file "));
  for (const fs::path& folder : cgroups.v1)
    apply_limit(memory, number_in(folder / "memory.limit_in_bytes"),
                number_in(folder / "memory.usage_in_bytes"),
                field(read_small(folder / "memory.stat").value_or(""), "total_inactive_file "));
  return memory;
}

#endif

Result<fs::path> data_folder(const DataFolderVariables& variables) {
  if (variables.kapitsa_home) return fs::path(*variables.kapitsa_home);
#ifndef __APPLE__
  if (variables.xdg_data_home && fs::path(*variables.xdg_data_home).is_absolute())
    return fs::path(*variables.xdg_data_home) / "kapitsa";
#endif
  if (!variables.home)
    return Error{ErrorCode::not_found,
                 "no folder for models and data: neither KAPITSA_HOME nor HOME is set"};
#ifdef __APPLE__
  return fs::path(*variables.home) / "Library/Application Support/kapitsa";
#else
  return fs::path(*variables.home) / ".local/share/kapitsa";
#endif
}

std::optional<fs::path> config_folder(const DataFolderVariables& variables) {
  if (variables.kapitsa_home) return fs::path(*variables.kapitsa_home);
#ifdef __APPLE__
  const auto data = data_folder(variables);
  return data ? std::optional(*data) : std::nullopt;
#else
  if (variables.xdg_config_home && fs::path(*variables.xdg_config_home).is_absolute())
    return fs::path(*variables.xdg_config_home) / "kapitsa";
  if (!variables.home) return std::nullopt;
  return fs::path(*variables.home) / ".config/kapitsa";
#endif
}

bool has_arm_dot_product() {
#if defined(__aarch64__) && defined(__APPLE__)
  return true;  // every Apple chip that runs a supported system
#elif defined(__aarch64__)
  constexpr unsigned long kDotProduct = 1UL << 20;  // HWCAP_ASIMDDP
  return (::getauxval(AT_HWCAP) & kDotProduct) != 0;
#else
  return false;
#endif
}

bool is_terminal(int fd) {
  return ::isatty(fd) == 1;
}

std::optional<int> terminal_width(int fd) {
  struct winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace kapitsa
