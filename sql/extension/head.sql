\echo Use "CREATE EXTENSION memfold CASCADE" to load this file. \quit
