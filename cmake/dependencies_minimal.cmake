# The libraries of a KAPITSA_MINIMAL build, for a target without installed libraries (the cross build for arm64). fmt and
# Boost are headers that the system's include path has for every target; Boost.JSON and GoogleTest are compiled here from
# the sources that their packages ship.
find_package(Threads REQUIRED)

set(KAPITSA_FMT fmt::fmt)
add_library(fmt::fmt INTERFACE IMPORTED)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)

file(WRITE ${PROJECT_BINARY_DIR}/boost_json.cpp "#include <boost/json/src.hpp>\n")
add_library(boost_json_from_headers STATIC ${PROJECT_BINARY_DIR}/boost_json.cpp)
add_library(Boost::json ALIAS boost_json_from_headers)

if(KAPITSA_TESTS)
  set(KAPITSA_GOOGLETEST_SOURCE /usr/src/googletest CACHE PATH "The sources of GoogleTest (Debian's package googletest)")
  set(INSTALL_GTEST OFF)
  add_subdirectory(${KAPITSA_GOOGLETEST_SOURCE} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  target_compile_options(gtest PRIVATE -w)
endif()
