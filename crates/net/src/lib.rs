//! Links: for now the HTTP client of the api.
