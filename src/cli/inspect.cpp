// kapitsa inspect MODEL: what a model file holds, and whether it fits this machine.
#include "kapitsa/inspect.h"

#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/show.h"

#include <fmt/format.h>

#include <cstdio>

namespace kapitsa::cli {
namespace {

struct InspectOptions {
  std::string model;
  MachineOptions machine;
  bool tensors = false;
  bool metadata = false;
  bool json = false;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape)
    text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
  return text.empty() ? "1" : text;
}

void line(const char* label, const std::string& value) {
  fmt::print("{:<14}{}\n", label, one_line(value));
}

void print_verdict(const MemoryReport& memory) {
  const std::string largest =
      memory.largest_context == 0
          ? "no context fits"
          : fmt::format("largest context that fits: {}", memory.largest_context);
  if (memory.fits()) {
    fmt::print("Fits: {} are free; {}.\n", show_bytes(memory.available), largest);
  } else if (memory.loads()) {
    fmt::print("Loads, but {} of the weights stay on the disk, which is slow: {} are free; {}.\n",
               show_bytes(memory.total() - memory.available), show_bytes(memory.available),
               largest);
  } else {
    fmt::print("Does not fit: {} are missing, {} are free; {}.\n",
               show_bytes(memory.allocated() - memory.available), show_bytes(memory.available),
               memory.largest_loadable > 0
                   ? fmt::format("largest context that loads: {}", memory.largest_loadable)
                   : largest);
  }
}

void print_memory(const MemoryReport& memory) {
  fmt::print("\nMemory for a context of {} tokens on {}\n", memory.context, memory.backend);
  const auto part = [](const char* label, int64_t bytes) {
    if (bytes > 0) fmt::print("  {:<16}{:>10}\n", label, show_bytes(bytes));
  };
  part("weights, mapped", memory.weights_mapped);
  part("weights, copied", memory.weights_copied);
  part("keys and values", memory.kv_cache);
  part("states", memory.states);
  part("buffers", memory.buffers);
  part("together", memory.total());
  part("read by row", memory.tables_in_file);
  print_verdict(memory);
}

void print_tensors(const FileReport& report) {
  Table table({"tensor", "type", "shape", "size"});
  for (const TensorInfo& tensor : report.tensors)
    table.add({shorten(tensor.name, 44), tensor.type, shape_text(tensor.shape),
               show_bytes(tensor.bytes)});
  fmt::print("\n{}", table.text());
}

void print_report(const FileReport& report, const InspectOptions& options) {
  line("name", report.name);
  line("file", report.path);
  line("format", report.format);
  line("architecture", report.architecture);
  if (report.not_runnable.empty()) {
    line("parameters",
         fmt::format("{} in {} layers", show_count(report.n_parameters), report.n_layers));
    line("vocabulary", std::to_string(report.n_vocab));
    line("context", fmt::format("{} tokens", report.context_trained));
  }
  line("weights", fmt::format("{} tensors, {}, mostly {}", report.tensors.size(),
                              show_bytes(report.weight_bytes), report.quantisation));
  Table types({"  type", "tensors", "values", "size", "share"});
  for (const TypeShare& type : report.types) {
    const double share = 100.0 * static_cast<double>(type.bytes) /
                         static_cast<double>(std::max<int64_t>(report.weight_bytes, 1));
    types.add({"  " + type.type, std::to_string(type.n_tensors), show_count(type.n_elements),
               show_bytes(type.bytes), fmt::format("{:.1f}%", share)});
  }
  fmt::print("\n{}", types.text());
  if (options.metadata) {
    fmt::print("\n");
    for (const auto& [key, value] : report.metadata)
      fmt::print("{} = {}\n", key, value);
  }
  if (options.tensors) print_tensors(report);
  if (report.memory) print_memory(*report.memory);
  if (!report.not_runnable.empty())
    fmt::print("\nThis version cannot run it: {}\n", report.not_runnable);
}

void write_memory(JsonWriter& json, const MemoryReport& memory) {
  json.key("memory").begin_object();
  json.member("backend", memory.backend)
      .member("context", memory.context)
      .member("weights_mapped", memory.weights_mapped)
      .member("weights_copied", memory.weights_copied)
      .member("tables_in_file", memory.tables_in_file)
      .member("kv_cache", memory.kv_cache)
      .member("states", memory.states)
      .member("buffers", memory.buffers)
      .member("total", memory.total())
      .member("available", memory.available)
      .member("loads", memory.loads())
      .member("fits", memory.fits())
      .member("largest_context", memory.largest_context)
      .member("largest_loadable_context", memory.largest_loadable);
  json.end_object();
}

std::string to_json(const FileReport& report) {
  JsonWriter json(2);
  json.begin_object()
      .member("path", report.path)
      .member("format", report.format)
      .member("name", report.name)
      .member("architecture", report.architecture)
      .member("quantisation", report.quantisation)
      .member("weight_bytes", report.weight_bytes)
      .member("runnable", report.not_runnable.empty());
  if (report.not_runnable.empty()) {
    json.member("parameters", report.n_parameters)
        .member("layers", report.n_layers)
        .member("vocabulary", report.n_vocab)
        .member("context_trained", report.context_trained);
  } else {
    json.member("reason", report.not_runnable);
  }
  if (report.memory) write_memory(json, *report.memory);
  json.key("metadata").begin_object();
  for (const auto& [key, value] : report.metadata)
    json.member(key, value);
  json.end_object().key("tensors").begin_array();
  for (const TensorInfo& tensor : report.tensors) {
    json.begin_object().member("name", tensor.name).member("type", tensor.type);
    json.key("shape").begin_array();
    for (const int64_t size : tensor.shape)
      json.value(size);
    json.end_array().member("bytes", tensor.bytes).end_object();
  }
  return json.end_array().end_object().take();
}

int inspect_command(const InspectOptions& options) {
  const auto path = find_model(options.model);
  if (!path) return report(path.error());
  const auto found = inspect(load_options(options.machine, *path));
  if (!found) return report(found.error());
  if (options.json) {
    fmt::print("{}\n", to_json(*found));
  } else {
    print_report(*found, options);
  }
  return 0;
}

}  // namespace

void add_inspect(const Command& app, int& exit_code) {
  auto options = std::make_shared<InspectOptions>();
  const Command command =
      app.subcommand("inspect", "Show what a model file holds and whether it fits");
  command
      .option("MODEL", options->model,
              "Name as in 'kapitsa list', or path of a model file or folder")
      .required();
  command.flag("--tensors", options->tensors, "List every tensor");
  command.flag("--metadata", options->metadata, "List every key of the metadata");
  command.flag("--json", options->json, "All of it as one JSON object");
  add_machine_options(command, options->machine);
  command.footer("Examples:\n"
                 "  kapitsa inspect smollm2\n"
                 "  kapitsa inspect model.gguf --ctx 32768\n"
                 "  kapitsa inspect model.gguf --tensors | grep attn_q");
  command.on_run([options, &exit_code] { exit_code = inspect_command(*options); });
}

}  // namespace kapitsa::cli
